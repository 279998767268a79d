"""IRS.V-EMax on the CPU: the inner problem over the lattice of pull counts.

After ``n_a`` pulls of each arm along a sampled outcome, let ``Gamma[n] = E[max_a mu_a]`` under the
beliefs reached.  Pulling arm a at n, with ``t = sum n`` periods gone, pays (section
"Implementation of IRS.V-EMax", with the index of the mean corrected)

    mu_hat[a, n_a] + (T - t - 1) (Gamma[n] - Gamma[n + e_a]).

Along any sequence the second terms add up to ``T Gamma[0]`` less the sum of ``Gamma`` over the T
points visited before a pull, so that with Z = value-to-go - (T - t) Gamma the dynamic programme is

    Z[n] = max_a (mu_hat[a, n_a] + Z[n + e_a]) - Gamma[n],      Z = 0 where sum n = T,

and the inner value is ``Z[0] + T Gamma[0]``: every Gamma enters once, and only where sum n < T.
It runs backward, so that the optimal sequence is read forward; at every period a tie goes to the
arm with the lowest number.

Two arms, the hot case, are laid out by anti-diagonals: period t holds the ``t + 1`` points
``(k, t - k)`` next to each other from ``t (t + 1) / 2`` on, which makes both the recurrences for
Gamma and the dynamic programme plain loops over a row.
"""

import math
from typing import Final

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from irsppl.inner.cpu.families import (
    BETA_BERNOULLI,
    GAMMA_EXPONENTIAL,
    GAMMA_POISSON,
    NORMAL_NORMAL,
    sample_path,
)
from irsppl.inner.cpu.index import (
    _beta_start,
    _beta_term,
    _check_family,
    _excess_table,
    _gamma_start,
    _reward_array,
    _rows,
    beta_cdf,
)
from irsppl.inner.cpu.rng import KERNEL, seed_state

__all__ = [
    "beta_exceeds",
    "emax_batch_2",
    "emax_decide_2",
    "emax_paths_2",
    "emax_sequence",
    "expected_max_2",
    "gamma_lattice",
]

_TINY: Final = 1e-290
_EXCESS_STEP: Final = 1.0 / 32.0
_EXCESS_LAST: Final = 16.0
# Flat (psi, Q, phi) columns one after the other: the vectorised loop gathers from each.
_EXCESS_POINTS: Final = 513
_EXCESS: Final = np.ascontiguousarray(_excess_table(_EXCESS_STEP, _EXCESS_LAST).T).ravel()


# --- E[max] of two arms -----------------------------------------------------------------------


@njit(**KERNEL)
def _beta_overlap(a: float, b: float, c: float, d: float) -> float:
    """B(a + c, b + d) / (B(a, b) B(c, d)).

    Written as a quotient of x^a (1-x)^b / B(a, b) terms, which holds at any x; at the joint mean
    none of the three is small unless the quotient is.
    """
    x = (a + c) / (a + b + c + d)
    return _beta_term(a, b, x) * _beta_term(c, d, x) / _beta_term(a + c, b + d, x)


@njit(**KERNEL)
def _beta_exceeds_small(a: float, b: float, c: float, d: float) -> float:
    """P(X > Y), X ~ Beta(a, b), Y ~ Beta(c, d), for parameters of at most two or so.

    The integral of the density of X times the CDF of Y, each half of [0, 1] in u with
    x = exp(-u) / 2, which removes the end's singularity, and u = exp(pi/2 sinh s), under which
    the trapezoidal rule converges exponentially.
    """
    step = 1.0 / 16.0
    total = 0.0
    for i in range(-64, 65):
        s = i * step
        u = math.exp(0.5 * math.pi * math.sinh(s))
        if u > 690.0 / min(a, b, 1.0):
            break
        x = 0.5 * math.exp(-u)
        if x <= 0.0:
            break
        weight = step * u * 0.5 * math.pi * math.cosh(s)
        # dx / du = x, and the density is x^a (1-x)^b / B(a, b) over x (1 - x).
        left = _beta_term(a, b, x) / (1.0 - x) * beta_cdf(c, d, x)
        right = _beta_term(b, a, x) / (1.0 - x) * (1.0 - beta_cdf(d, c, x))
        total += weight * (left + right)
    return total


@njit(**KERNEL)
def beta_exceeds(a: float, b: float, c: float, d: float) -> float:
    """P(X > Y) for independent X ~ Beta(a, b) and Y ~ Beta(c, d).

    Whole numbers are taken off the parameters until all are below two, the probability is
    computed there, and one-step recurrences lead back, in proportion so that the two laws stay
    about as far apart as they are in the end.
    """
    if a == c and b == d:
        return 0.5
    na = max(0, math.ceil(a) - 2)
    nb = max(0, math.ceil(b) - 2)
    nc = max(0, math.ceil(c) - 2)
    nd = max(0, math.ceil(d) - 2)
    a -= na
    b -= nb
    c -= nc
    d -= nd
    g = 0.5 if a == c and b == d else _beta_exceeds_small(a, b, c, d)
    h = _beta_overlap(a, b, c, d)
    most = max(na, nb, nc, nd)
    n = a + b + c + d
    for i in range(1, most + 1):
        if i * na // most > (i - 1) * na // most:
            g += h / a
            h *= (a + c) * (a + b) / (a * n)
            a += 1.0
            n += 1.0
        if i * nb // most > (i - 1) * nb // most:
            g -= h / b
            h *= (b + d) * (a + b) / (b * n)
            b += 1.0
            n += 1.0
        if i * nc // most > (i - 1) * nc // most:
            g -= h / c
            h *= (a + c) * (c + d) / (c * n)
            c += 1.0
            n += 1.0
        if i * nd // most > (i - 1) * nd // most:
            g += h / d
            h *= (b + d) * (c + d) / (d * n)
            d += 1.0
            n += 1.0
        h = max(h, _TINY)
    return min(max(g, 0.0), 1.0)


@njit(**KERNEL, fastmath={"contract"})
def _excess(z: float) -> float:
    """E[(Z - z)^+], Z standard normal, z >= 0: `normal_excess` without its branch."""
    z = z if z < _EXCESS_LAST else _EXCESS_LAST
    i = np.int32(z * (1.0 / _EXCESS_STEP) + 0.5)
    x = i * _EXCESS_STEP
    d = z - x
    xx = x * x
    rest = 0.5 + d * (x * (-1.0 / 6.0) + d * ((xx - 1.0) / 24.0 + d * x * (3.0 - xx) / 120.0))
    return _EXCESS[i] + d * (
        d * _EXCESS[i + 2 * _EXCESS_POINTS] * rest - _EXCESS[i + _EXCESS_POINTS]
    )


@njit(**KERNEL)
def _pair_max(
    family: int, xi1: float, nu1: float, sd1: float, xi2: float, nu2: float, sd2: float
) -> float:
    """E[max(mu_1, mu_2)] of two arms of one family, in closed form."""
    m1 = xi1 / nu1
    m2 = xi2 / nu2
    if family == NORMAL_NORMAL:
        s = math.sqrt(sd1 * sd1 / nu1 + sd2 * sd2 / nu2)
        return max(m1, m2) + s * _excess(abs(m1 - m2) / s)
    if family == BETA_BERNOULLI:
        g = beta_exceeds(xi1, nu1 - xi1, xi2, nu2 - xi2)
        h = _beta_overlap(xi1, nu1 - xi1, xi2, nu2 - xi2)
        return m2 + (m1 - m2) * g + h * (1.0 / nu1 + 1.0 / nu2)
    # Weighting a Gamma law by its value (or by one over it) adds one to (takes one off) its shape,
    # and the order of two Gammas is a Beta probability.
    if family == GAMMA_POISSON:
        above, p = _beta_start(xi2, xi1, nu2 / (nu1 + nu2))
        return m1 * (above + p / xi1) + m2 * (1.0 - above + p / xi2)
    above, p = _beta_start(nu1, nu2, xi1 / (xi1 + xi2))
    return m1 * (above + p / nu2) + m2 * (1.0 - above + p / nu1)


# --- two arms: Gamma over the lattice, and the dynamic programme -------------------------------
# Rows of the work array [_ROWS, T]: per pull count of arm 1 in order, of arm 2 in reverse, because
# along an anti-diagonal the count of arm 2 falls as that of arm 1 rises.

_ROWS: Final = 14
_MEAN1: Final = 0
_MEAN2: Final = 1  # reversed
_Z: Final = 2
_X1: Final = 3  # Beta: failures b; Gaussian: posterior variance
_Y1: Final = 4  # Beta: a - b
_INV1: Final = 5  # Beta: 1 / (a + b)
_OFF2: Final = 6  # reversed; Beta: c after a success to come, d after a failure
_WON2: Final = 7  # reversed; Beta: 1.0 if the next reward is a success
_RATE2: Final = 8  # reversed; Beta: (c + d) / off
_STEP2: Final = 9  # reversed; Beta: -1 / c or +1 / d
_INV2: Final = 10  # reversed; Beta: 1 / (c + d); Gaussian: posterior variance
_G: Final = 11  # Beta: P(X > Y) on the current anti-diagonal
_H: Final = 12  # Beta: B(a + c, b + d) / (B(a, b) B(c, d)) there
_FACTOR: Final = 13  # Beta: by what h grows to the next anti-diagonal


@njit(**KERNEL, fastmath={"contract", "reassoc", "nsz", "nnan", "arcp"})
def _fill_beta(
    xi1: float,
    nu1: float,
    xi2: float,
    nu2: float,
    g0: float,
    h0: float,
    horizon: int,
    work: NDArray[np.float64],
    gammas: NDArray[np.float64],
) -> None:
    """Gamma of two Beta arms at every point with sum n < T, into ``gammas`` [T (T + 1) / 2].

    With g = P(X > Y) and h as above, E[max] = m2 + (m1 - m2) g + h (1/(a+b) + 1/(c+d)), and one
    more reward of either arm changes g and h by a term and a factor.  ``g0``, ``h0`` are their
    values at the current belief.
    """
    last = horizon - 1
    mean1 = work[_MEAN1]
    mean2 = work[_MEAN2]
    b1 = work[_X1]
    gap1 = work[_Y1]
    inv1 = work[_INV1]
    off2 = work[_OFF2]
    won2 = work[_WON2]
    rate2 = work[_RATE2]
    step2 = work[_STEP2]
    inv2 = work[_INV2]
    g = work[_G]
    h = work[_H]
    factor = work[_FACTOR]
    for n in range(horizon):
        a = mean1[n] * (nu1 + n)
        b1[n] = nu1 + n - a
        gap1[n] = a - b1[n]
        inv1[n] = 1.0 / (nu1 + n)
    for n in range(horizon):
        i = last - n
        inv2[i] = 1.0 / (nu2 + n)
        if n < last:
            c = mean2[i] * (nu2 + n)
            won = mean2[i - 1] * (nu2 + n + 1) - c > 0.5
            off = c if won else nu2 + n - c
            won2[i] = 1.0 if won else 0.0
            off2[i] = off
            rate2[i] = (nu2 + n) / off
            step2[i] = (-1.0 if won else 1.0) / off
    g[0] = g0
    h[0] = h0
    size = nu1 + nu2
    gammas[0] = mean2[last] + (mean1[0] - mean2[last]) * g0 + h0 * (inv1[0] + inv2[last])
    c0 = xi2
    d0 = nu2 - xi2
    for t in range(last):
        inv = 1.0 / (size + t)
        # The new end of the row, (t + 1, 0), comes from (t, 0) by a reward of arm 1.
        b = b1[t]
        a = b + gap1[t]
        if b1[t + 1] - b < 0.5:
            g[t + 1] = g[t] + h[t] / a
            h[t + 1] = max(h[t] * (a + c0) * (a + b) / a * inv, _TINY)
        else:
            g[t + 1] = g[t] - h[t] / b
            h[t + 1] = max(h[t] * (b + d0) * (a + b) / b * inv, _TINY)
        # Slices, because an index of unknown sign would be gathered instead of loaded.
        off2_t = off2[last - t :]
        won2_t = won2[last - t :]
        rate2_t = rate2[last - t :]
        step2_t = step2[last - t :]
        mean2_t = mean2[last - t - 1 :]
        inv2_t = inv2[last - t - 1 :]
        row = gammas[(t + 1) * (t + 2) // 2 :]
        # Three loops, because LLVM vectorises one only if few enough arrays could overlap.
        for k in range(t + 1):
            factor[k] = (off2_t[k] + b1[k] + won2_t[k] * gap1[k]) * (rate2_t[k] * inv)
        for k in range(t + 1):
            old = h[k]
            g[k] += old * step2_t[k]
            new = old * factor[k]
            h[k] = new if new > _TINY else _TINY
        for k in range(t + 2):
            m2 = mean2_t[k]
            row[k] = m2 + (mean1[k] - m2) * g[k] + h[k] * (inv1[k] + inv2_t[k])


@njit(**KERNEL, fastmath={"contract", "reassoc", "nsz", "nnan", "arcp"})
def _fill_normal(
    nu1: float,
    sd1: float,
    nu2: float,
    sd2: float,
    horizon: int,
    work: NDArray[np.float64],
    gammas: NDArray[np.float64],
) -> None:
    """Gamma of two Gaussian arms at every point with sum n < T, into ``gammas``."""
    last = horizon - 1
    mean1 = work[_MEAN1]
    mean2 = work[_MEAN2]
    var1 = work[_X1]
    var2 = work[_INV2]
    for n in range(horizon):
        var1[n] = sd1 * sd1 / (nu1 + n)
        var2[last - n] = sd2 * sd2 / (nu2 + n)
    for t in range(horizon):
        mean2_t = mean2[last - t :]
        var2_t = var2[last - t :]
        row = gammas[t * (t + 1) // 2 :]
        for k in range(t + 1):
            s = math.sqrt(var1[k] + var2_t[k])
            m1 = mean1[k]
            m2 = mean2_t[k]
            row[k] = (m1 if m1 > m2 else m2) + s * _excess(abs(m1 - m2) / s)


@njit(**KERNEL)
def _fill_any(
    family: int,
    nu1: float,
    nu2: float,
    horizon: int,
    work: NDArray[np.float64],
    gammas: NDArray[np.float64],
) -> None:
    """The same for the two Gamma families, one incomplete beta function per point."""
    last = horizon - 1
    for t in range(horizon):
        for k in range(t + 1):
            n1 = nu1 + k
            n2 = nu2 + t - k
            gammas[t * (t + 1) // 2 + k] = _pair_max(
                family, work[_MEAN1, k] * n1, n1, 0.0, work[_MEAN2, last - t + k] * n2, n2, 0.0
            )


@njit(**KERNEL, fastmath={"nsz", "nnan"})
def _solve_2(
    horizon: int, work: NDArray[np.float64], gammas: NDArray[np.float64]
) -> tuple[float, int]:
    """Backward recursion; replaces Gamma in ``gammas`` by Z.  Returns the value and first arm."""
    last = horizon - 1
    mean1 = work[_MEAN1]
    mean2 = work[_MEAN2]
    z = work[_Z]
    gamma0 = gammas[0]
    start = last * horizon // 2
    for k in range(horizon):
        x = mean1[k]
        y = mean2[k]
        v = (x if x > y else y) - gammas[start + k]
        gammas[start + k] = v
        z[k] = v
    first = 0 if mean1[0] >= mean2[last] else 1
    for t in range(last - 1, -1, -1):
        mean2_t = mean2[last - t :]
        row = gammas[t * (t + 1) // 2 :]
        if t == 0:
            first = 0 if mean1[0] + z[1] >= mean2[last] + z[0] else 1
        for k in range(t + 1):
            x = mean1[k] + z[k + 1]
            y = mean2_t[k] + z[k]
            v = (x if x > y else y) - row[k]
            z[k] = v
            row[k] = v
    return z[0] + horizon * gamma0, first


@njit(**KERNEL)
def _pulls_of_first(horizon: int, work: NDArray[np.float64], z: NDArray[np.float64]) -> int:
    """Pulls of arm 1 in the optimal sequence, read forward from the table left by `_solve_2`."""
    last = horizon - 1
    k = 0
    for t in range(horizon):
        x = work[_MEAN1, k]
        y = work[_MEAN2, last - t + k]
        if t < last:
            after = (t + 1) * (t + 2) // 2 + k
            x += z[after + 1]
            y += z[after]
        if x >= y:
            k += 1
    return k


@njit(**KERNEL)
def _fill(
    family: int,
    xi: NDArray[np.float64],
    nu: NDArray[np.float64],
    sd: NDArray[np.float64],
    g0: float,
    h0: float,
    horizon: int,
    work: NDArray[np.float64],
    gammas: NDArray[np.float64],
) -> None:
    if family == BETA_BERNOULLI:
        _fill_beta(xi[0], nu[0], xi[1], nu[1], g0, h0, horizon, work, gammas)
    elif family == NORMAL_NORMAL:
        _fill_normal(nu[0], sd[0], nu[1], sd[1], horizon, work, gammas)
    else:
        _fill_any(family, nu[0], nu[1], horizon, work, gammas)


@njit(**KERNEL)
def _pair_start(
    family: int, xi: NDArray[np.float64], nu: NDArray[np.float64]
) -> tuple[float, float]:
    """g and h of two Beta arms at the current belief; zeros for the other families."""
    if family != BETA_BERNOULLI:
        return 0.0, 0.0
    a, b, c, d = xi[0], nu[0] - xi[0], xi[1], nu[1] - xi[1]
    return beta_exceeds(a, b, c, d), _beta_overlap(a, b, c, d)


@njit(cache=True, nogil=True, error_model="numpy")
def _batch_2(
    family: int,
    xi: NDArray[np.float64],
    nu: NDArray[np.float64],
    sd: NDArray[np.float64],
    rewards: NDArray[np.floating],
    values: NDArray[np.float64],
    first: NDArray[np.int16],
    counts: NDArray[np.int64],
) -> None:
    horizon = rewards.shape[2]
    last = horizon - 1
    work = np.empty((_ROWS, horizon + 1))
    gammas = np.empty(horizon * (horizon + 1) // 2)
    g0, h0 = _pair_start(family, xi, nu)
    for s in range(rewards.shape[0]):
        x = xi[0]
        y = xi[1]
        for n in range(horizon):
            work[_MEAN1, n] = x / (nu[0] + n)
            work[_MEAN2, last - n] = y / (nu[1] + n)
            x += rewards[s, 0, n]
            y += rewards[s, 1, n]
        _fill(family, xi, nu, sd, g0, h0, horizon, work, gammas)
        values[s], first[s] = _solve_2(horizon, work, gammas)
        pulls = _pulls_of_first(horizon, work, gammas)
        counts[s, 0] = pulls
        counts[s, 1] = horizon - pulls


@njit(**KERNEL)
def _sample_and_solve_2(
    family: int,
    xi: NDArray[np.float64],
    nu: NDArray[np.float64],
    sd: NDArray[np.float64],
    g0: float,
    h0: float,
    horizon: int,
    work: NDArray[np.float64],
    gammas: NDArray[np.float64],
    path: NDArray[np.float64],
    state: NDArray[np.uint64],
) -> int:
    """First action of the inner problem along one sampled future."""
    if horizon == 1:
        return 0 if xi[0] / nu[0] >= xi[1] / nu[1] else 1
    last = horizon - 1
    sample_path(state, family, xi[0], nu[0], sd[0], horizon, path, 0)
    for n in range(horizon):
        work[_MEAN1, n] = path[n]
    sample_path(state, family, xi[1], nu[1], sd[1], horizon, path, 0)
    for n in range(horizon):
        work[_MEAN2, last - n] = path[n]
    _fill(family, xi, nu, sd, g0, h0, horizon, work, gammas)
    return _solve_2(horizon, work, gammas)[1]


@njit(cache=True, nogil=True, error_model="numpy")
def _paths_2(
    family: int,
    xi0: NDArray[np.float64],
    nu0: NDArray[np.float64],
    sd: NDArray[np.float64],
    rewards: NDArray[np.floating],
    seeds: NDArray[np.uint64],
    actions: NDArray[np.int16],
) -> None:
    total = rewards.shape[2]
    work = np.empty((_ROWS, total + 1))
    gammas = np.empty(total * (total + 1) // 2)
    path = np.empty(total)
    state = np.empty(4, np.uint64)
    xi = np.empty(2)
    nu = np.empty(2)
    pulls = np.empty(2, np.int64)
    g_start, h_start = _pair_start(family, xi0, nu0)
    for s in range(rewards.shape[0]):
        seed_state(seeds[s], state)
        xi[:] = xi0
        nu[:] = nu0
        pulls[:] = 0
        g = g_start
        h = h_start
        for t in range(total):
            arm = _sample_and_solve_2(
                family, xi, nu, sd, g, h, total - t, work, gammas, path, state
            )
            actions[s, t] = arm
            r = float(rewards[s, arm, pulls[arm]])
            pulls[arm] += 1
            if family == BETA_BERNOULLI:
                # Carry g and h over the reward earned, as the lattice does over sampled ones.
                won = r > 0.5
                mine = xi[arm] if won else nu[arm] - xi[arm]
                both = xi[0] + xi[1] if won else nu[0] + nu[1] - xi[0] - xi[1]
                g += h / mine if won == (arm == 0) else -h / mine
                h = max(h * both * nu[arm] / (mine * (nu[0] + nu[1])), _TINY)
            xi[arm] += r
            nu[arm] += 1.0


@njit(cache=True, nogil=True, error_model="numpy")
def _decide_2(
    family: int,
    xi: NDArray[np.float64],
    nu: NDArray[np.float64],
    sd: NDArray[np.float64],
    remaining: NDArray[np.int64],
    seeds: NDArray[np.uint64],
    actions: NDArray[np.int16],
) -> None:
    most = 1
    for s in range(remaining.shape[0]):
        most = max(most, remaining[s])
    work = np.empty((_ROWS, most + 1))
    gammas = np.empty(most * (most + 1) // 2)
    path = np.empty(most)
    state = np.empty(4, np.uint64)
    g, h = 0.0, 0.0
    for s in range(seeds.shape[0]):
        seed_state(seeds[s], state)
        if s == 0 or np.any(xi[s] != xi[s - 1]) or np.any(nu[s] != nu[s - 1]):
            g, h = _pair_start(family, xi[s], nu[s])
        actions[s] = _sample_and_solve_2(
            family, xi[s], nu[s], sd[s], g, h, remaining[s], work, gammas, path, state
        )


# --- any number of arms ------------------------------------------------------------------------


@njit(cache=True, nogil=True, error_model="numpy")
def _sequence(
    gammas: NDArray[np.float64], means: NDArray[np.float64], horizon: int, sequence: NDArray
) -> float:
    """Dynamic programme over the cube of counts; fills ``sequence`` [T], returns the value."""
    num_arms = means.shape[0]
    side = horizon + 1
    strides = np.ones(num_arms, np.int64)
    for a in range(num_arms - 2, -1, -1):
        strides[a] = strides[a + 1] * side
    size = strides[0] * side
    z = np.zeros(size)
    counts = np.full(num_arms, horizon)
    spent = num_arms * horizon
    # n + e_a has a larger flat number than n, so counting down meets it first.
    for flat in range(size - 1, -1, -1):
        if spent < horizon:
            best = -np.inf
            for a in range(num_arms):
                best = max(best, means[a, counts[a]] + z[flat + strides[a]])
            z[flat] = best - gammas[flat]
        a = num_arms - 1
        while a >= 0 and counts[a] == 0:
            counts[a] = horizon
            spent += horizon
            a -= 1
        if a >= 0:
            counts[a] -= 1
            spent -= 1
    counts[:] = 0
    flat = 0
    for t in range(horizon):
        arm = 0
        best = -np.inf
        for a in range(num_arms):
            v = means[a, counts[a]] + z[flat + strides[a]]
            if v > best:
                best = v
                arm = a
        sequence[t] = arm
        counts[arm] += 1
        flat += strides[arm]
    return z[0] + horizon * gammas[0]


@njit(cache=True, nogil=True, error_model="numpy")
def _survival_tables(
    family: int,
    xi: NDArray[np.float64],
    nu: NDArray[np.float64],
    sd: NDArray[np.float64],
    rewards: NDArray[np.float64],
    nodes: NDArray[np.float64],
) -> NDArray[np.float64]:
    """P(mu_a > node) after each number of pulls, [K, T + 1, Q]."""
    num_arms, horizon = rewards.shape
    table = np.empty((num_arms, horizon + 1, nodes.shape[0]))
    for a in range(num_arms):
        for q in range(nodes.shape[0]):
            x = nodes[q]
            total = xi[a]
            above, p = 0.0, 0.0
            if family == BETA_BERNOULLI:
                below, p = _beta_start(total, nu[a] - total, x)
                above = 1.0 - below
            for n in range(horizon + 1):
                size = nu[a] + n
                if family == NORMAL_NORMAL:
                    v = sd[a] * math.sqrt(2.0 / size)
                    above = 0.5 * math.erfc((x - total / size) / v)
                elif family == GAMMA_POISSON:
                    above = _gamma_start(total, size * x)[1]
                elif family == GAMMA_EXPONENTIAL:
                    above = _gamma_start(size + 1.0, total / x)[0]
                table[a, n, q] = above
                if n < horizon:
                    r = rewards[a, n]
                    if family == BETA_BERNOULLI:
                        if r > 0.5:
                            above += p / total
                            p = max(p * x * size / total, _TINY)
                        else:
                            above -= p / (size - total)
                            p = max(p * (1.0 - x) * size / (size - total), _TINY)
                    total += r
    return table


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})
def _gamma_cube(
    table: NDArray[np.float64], weights: NDArray[np.float64], base: float
) -> NDArray[np.float64]:
    """base + sum_q w_q (1 - prod_a F[a, n_a, q]) where sum n <= T, NaN elsewhere; flat.

    ``table`` [K, T + 1, Q] holds 1 - F: the far nodes of a heavy tail have large weights, and
    there 1 - prod F must be built from the small survival probabilities.
    """
    num_arms, side, num_nodes = table.shape
    horizon = side - 1
    gammas = np.full(side**num_arms, np.nan)
    # Of the arms before a: none[a] is the product of their F, some[a] its complement.  They
    # change only when the counts of those arms do.
    none = np.ones((num_arms, num_nodes))
    some = np.zeros((num_arms, num_nodes))
    dot = weights.copy()
    counts = np.zeros(num_arms, np.int64)
    spent = 0
    fresh = 1
    last = num_arms - 1
    flat = 0
    while True:
        for a in range(fresh, num_arms):
            for q in range(num_nodes):
                above = table[a - 1, counts[a - 1], q]
                some[a, q] = some[a - 1, q] + none[a - 1, q] * above
                none[a, q] = none[a - 1, q] * (1.0 - above)
        prefix = base
        for q in range(num_nodes):
            prefix += weights[q] * some[last, q]
            dot[q] = weights[q] * none[last, q]
        for n in range(side):
            if spent + n <= horizon:
                total = prefix
                for q in range(num_nodes):
                    total += dot[q] * table[last, n, q]
                gammas[flat + n] = total
        flat += side
        a = last - 1
        while a >= 0 and counts[a] == horizon:
            counts[a] = 0
            spent -= horizon
            a -= 1
        if a < 0:
            return gammas
        counts[a] += 1
        spent += 1
        fresh = a + 1


def _nodes(
    family: int,
    xi: NDArray[np.float64],
    nu: NDArray[np.float64],
    sd: NDArray[np.float64],
    horizon: int,
    num_nodes: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Nodes, weights and left end of the integral of 1 - prod F.

    They depend on the belief at the start alone, hence are the same over the whole lattice: then
    E[Gamma(n + e_a) | n] = Gamma(n) holds for the quadrature itself, whatever its error.
    """
    means = xi / nu
    if family != NORMAL_NORMAL:
        if num_nodes == 0:
            # About 1/sqrt(size) is the relative width of the narrowest law expected on the way.
            size = nu + horizon
            if family == GAMMA_POISSON:
                size = np.maximum(size, size * means)
            num_nodes = 48 + round(14 * math.sqrt(size.max()))
        u, w = np.polynomial.legendre.leggauss(num_nodes)
        u = 0.25 * math.pi * (u + 1.0)
        w = 0.25 * math.pi * w
        # sin^2 and tan^2 smooth the powers with which a CDF leaves 0 and 1, and the second also
        # the power tail of 1 / Gamma.
        if family == BETA_BERNOULLI:
            return np.sin(u) ** 2, 2.0 * w * np.sin(u) * np.cos(u), 0.0
        scale = float(np.max(means))
        return scale * np.tan(u) ** 2, 2.0 * scale * w * np.tan(u) / np.cos(u) ** 2, 0.0
    spread = sd / np.sqrt(nu)
    lo = float(np.max(means - 9.0 * spread))
    hi = float(np.max(means + 9.0 * spread))
    marks = (means[:, None] + np.array([-9.0, -3.0, 0.0, 3.0, 9.0]) * spread[:, None]).ravel()
    edges = np.unique(np.concatenate([[lo, hi], marks[(marks > lo) & (marks < hi)]]))
    # Every piece spans at most 6 of the sds of any arm whose law has mass in it.
    if num_nodes == 0:
        num_nodes = 16 + round(6 * math.sqrt((horizon + nu.min()) / nu.min()))
    u, w = np.polynomial.legendre.leggauss(num_nodes)
    half = 0.5 * np.diff(edges)
    centre = 0.5 * (edges[1:] + edges[:-1])
    nodes = (centre[:, None] + half[:, None] * u).ravel()
    return nodes, (half[:, None] * w).ravel(), lo


# --- the functions others call ----------------------------------------------------------------


def expected_max_2(family: int, xi: ArrayLike, nu: ArrayLike, noise_sd: ArrayLike = 1.0) -> float:
    """E[max(mu_1, mu_2)] of two independent arms with beliefs ``xi, nu, noise_sd`` [2]."""
    x, n, s = _rows(xi, nu, noise_sd, (2,))
    return _pair_max(_check_family(family), x[0], n[0], s[0], x[1], n[1], s[1])


def gamma_lattice(
    family: int,
    xi: ArrayLike,
    nu: ArrayLike,
    noise_sd: ArrayLike,
    rewards: ArrayLike,
    num_nodes: int = 0,
) -> NDArray[np.float64]:
    """E[max_a mu_a] at every count vector along ``rewards`` [K, T], for any small K.

    Quadrature of 1 - prod_a F_a on nodes common to the whole lattice; ``num_nodes`` (per piece of
    the range) overrides the default, which is good to about 1e-10.  Returns float64 of shape
    (T + 1,) * K, NaN where more than T pulls are counted.
    """
    path = np.ascontiguousarray(np.asarray(rewards, np.float64))
    if path.ndim != 2:
        raise ValueError(f"rewards must have shape [K, T], got {path.shape}")
    num_arms, horizon = path.shape
    x, n, s = _rows(xi, nu, noise_sd, (num_arms,))
    nodes, weights, base = _nodes(_check_family(family), x, n, s, horizon, num_nodes)
    table = _survival_tables(family, x, n, s, path, nodes)
    return _gamma_cube(table, weights, base).reshape((horizon + 1,) * num_arms)


def emax_sequence(
    gammas: ArrayLike, mu_hat: ArrayLike, horizon: int
) -> tuple[float, NDArray[np.int32]]:
    """Value and optimal sequence of the V-EMax inner problem, any number of arms.

    Parameters
    ----------
    gammas
        Shape (T + 1,) * K, or flat in C order; read only where sum n < T.
    mu_hat
        [K, T] (or longer): posterior mean of each arm after 0, 1, ... sampled rewards.
    horizon
        T.

    Returns
    -------
    value, int32 [T]
        Ties go to the lowest arm, period by period from the first.
    """
    means = np.ascontiguousarray(np.asarray(mu_hat, np.float64))
    if means.ndim != 2 or means.shape[1] < horizon:
        raise ValueError(f"mu_hat must have shape [K, >= {horizon}], got {means.shape}")
    flat = np.ascontiguousarray(np.asarray(gammas, np.float64)).ravel()
    if flat.shape[0] != (horizon + 1) ** means.shape[0]:
        raise ValueError(
            f"gammas must hold (T + 1)^K = {(horizon + 1) ** means.shape[0]} numbers, "
            f"got {flat.shape[0]}"
        )
    sequence = np.empty(horizon, np.int32)
    return _sequence(flat, means, horizon, sequence), sequence


def _two_armed(rewards: ArrayLike) -> NDArray[np.floating]:
    array = _reward_array(rewards)
    if array.ndim != 3 or array.shape[1] != 2:
        raise ValueError(f"rewards must have shape [S, 2, T], got {array.shape}")
    return array


def emax_batch_2(
    family: int, xi: ArrayLike, nu: ArrayLike, noise_sd: ArrayLike, rewards: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.int16], NDArray[np.int64]]:
    """V-EMax inner problems of two arms along S outcomes.

    ``xi, nu, noise_sd`` [2], ``rewards`` [S, 2, T].  Returns the inner values, float64 [S], the
    first arm of each optimal sequence, int16 [S], and its pulls of each arm, int64 [S, 2]; ties
    as in :func:`emax_sequence`.  Fast for Bernoulli and Gaussian rewards; the two Gamma families
    need an incomplete beta function at each lattice point.
    """
    paths = _two_armed(rewards)
    num_runs = paths.shape[0]
    x, n, s = _rows(xi, nu, noise_sd, (2,))
    values = np.empty(num_runs)
    first = np.empty(num_runs, np.int16)
    counts = np.empty((num_runs, 2), np.int64)
    _batch_2(_check_family(family), x, n, s, paths, values, first, counts)
    return values, first, counts


def emax_paths_2(
    family: int,
    xi: ArrayLike,
    nu: ArrayLike,
    noise_sd: ArrayLike,
    rewards: ArrayLike,
    seeds: ArrayLike,
) -> NDArray[np.int16]:
    """Actions of IRS.V-EMax with two arms over whole replications.

    ``xi, nu, noise_sd`` [2] is the prior; the n-th pull of arm a in replication s earns
    ``rewards[s, a, n]``, [S, 2, T]; ``seeds`` uint64 [S].  Returns int16 [S, T].
    """
    earned = _two_armed(rewards)
    x, n, s = _rows(xi, nu, noise_sd, (2,))
    streams = np.ascontiguousarray(np.broadcast_to(np.asarray(seeds, np.uint64), earned.shape[:1]))
    actions = np.empty((earned.shape[0], earned.shape[2]), np.int16)
    _paths_2(_check_family(family), x, n, s, earned, streams, actions)
    return actions


def emax_decide_2(
    family: int,
    xi: ArrayLike,
    nu: ArrayLike,
    noise_sd: ArrayLike,
    remaining: ArrayLike,
    seeds: ArrayLike,
) -> NDArray[np.int16]:
    """One decision of IRS.V-EMax with two arms for each of S seeds.

    ``xi``, ``nu``, ``noise_sd`` are [2], one belief for all seeds, or [S, 2]; ``remaining`` is a
    number or [S]; ``seeds`` uint64 [S].  Returns int16 [S].
    """
    streams = np.ascontiguousarray(np.atleast_1d(np.asarray(seeds, np.uint64)))
    num_runs = streams.shape[0]
    x, n, s = _rows(xi, nu, noise_sd, (num_runs, 2))
    left = np.ascontiguousarray(np.broadcast_to(np.asarray(remaining, np.int64), (num_runs,)))
    if num_runs > 0 and left.min() < 1:
        raise ValueError(f"remaining must be at least 1, got {left.min()}")
    actions = np.empty(num_runs, np.int16)
    _decide_2(_check_family(family), x, n, s, left, streams, actions)
    return actions
