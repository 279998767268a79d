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

Here for two arms, which are laid out by anti-diagonals: period t holds the ``t + 1`` points
``(k, t - k)`` next to each other from ``t (t + 1) / 2`` on, which makes both the recurrences for
Gamma and the dynamic programme plain loops over a row.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from irsppl.inner.arrays import Floats
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.families import BETA_BERNOULLI, GAMMA_POISSON, NORMAL_NORMAL
from irsppl.inner.cpu.rng import KERNEL
from irsppl.inner.cpu.special import TINY, beta_cdf, beta_start, beta_term, normal_excess

# --- E[max] of two arms -----------------------------------------------------------------------


@njit(**KERNEL)
def _beta_overlap(a: float, b: float, c: float, d: float) -> float:
    """B(a + c, b + d) / (B(a, b) B(c, d)).

    Written as a quotient of x^a (1-x)^b / B(a, b) terms, which holds at any x; at the joint mean
    none of the three is small unless the quotient is.
    """
    x = (a + c) / (a + b + c + d)
    return beta_term(a, b, x) * beta_term(c, d, x) / beta_term(a + c, b + d, x)


_LAST: Final = 650.0  # exp(-u) of larger u is not a normal number


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
        # Small parameters reach beyond the least x that there is; both laws are powers of x there.
        beyond = max(u - _LAST, 0.0)
        x = 0.5 * math.exp(-min(u, _LAST))
        weight = step * u * 0.5 * math.pi * math.cosh(s)
        # dx / du = x, and the density is x^a (1-x)^b / B(a, b) over x (1 - x).
        left = beta_term(a, b, x) / (1.0 - x) * beta_cdf(c, d, x) * math.exp(-(a + c) * beyond)
        under = beta_cdf(d, c, x) * math.exp(-d * beyond)
        right = beta_term(b, a, x) / (1.0 - x) * math.exp(-b * beyond) * (1.0 - under)
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
    na, nb = max(0, math.ceil(a) - 2), max(0, math.ceil(b) - 2)
    nc, nd = max(0, math.ceil(c) - 2), max(0, math.ceil(d) - 2)
    a, b, c, d = a - na, b - nb, c - nc, d - nd
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
        h = max(h, TINY)
    return min(max(g, 0.0), 1.0)


@njit(**KERNEL)
def _gamma_max(family: int, xi1: float, nu1: float, xi2: float, nu2: float) -> float:
    """E[max(mu_1, mu_2)] of two arms of one of the Gamma families, in closed form."""
    m1 = xi1 / nu1
    m2 = xi2 / nu2
    # Weighting a Gamma law by its value (or by one over it) adds one to (takes one off) its shape,
    # and the order of two Gammas is a Beta probability.
    if family == GAMMA_POISSON:
        above, p = beta_start(xi2, xi1, nu2 / (nu1 + nu2))
        return m1 * (above + p / xi1) + m2 * (1.0 - above + p / xi2)
    above, p = beta_start(nu1, nu2, xi1 / (xi1 + xi2))
    return m1 * (above + p / nu2) + m2 * (1.0 - above + p / nu1)


# --- two arms: Gamma over the lattice, and the dynamic programme -------------------------------
# Rows of the work array [ROWS, T]: per pull count of arm 1 in order, of arm 2 in reverse, because
# along an anti-diagonal the count of arm 2 falls as that of arm 1 rises.

ROWS: Final = 14
MEAN1: Final = 0
MEAN2: Final = 1  # reversed
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
    work: Floats,
    gammas: Floats,
) -> None:
    """Gamma of two Beta arms at every point with sum n < T, into ``gammas`` [T (T + 1) / 2].

    With g = P(X > Y) and h as above, E[max] = m2 + (m1 - m2) g + h (1/(a+b) + 1/(c+d)), and one
    more reward of either arm changes g and h by a term and a factor.  ``g0``, ``h0`` are their
    values at the current belief.
    """
    last = horizon - 1
    mean1, mean2, b1, gap1, inv1 = work[MEAN1], work[MEAN2], work[_X1], work[_Y1], work[_INV1]
    off2, won2, rate2, step2 = work[_OFF2], work[_WON2], work[_RATE2], work[_STEP2]
    inv2, g, h, factor = work[_INV2], work[_G], work[_H], work[_FACTOR]
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
            h[t + 1] = max(h[t] * (a + c0) * (a + b) / a * inv, TINY)
        else:
            g[t + 1] = g[t] - h[t] / b
            h[t + 1] = max(h[t] * (b + d0) * (a + b) / b * inv, TINY)
        # Slices, because an index of unknown sign would be gathered instead of loaded.
        off2_t, won2_t, rate2_t = off2[last - t :], won2[last - t :], rate2[last - t :]
        step2_t, mean2_t = step2[last - t :], mean2[last - t - 1 :]
        inv2_t, row = inv2[last - t - 1 :], gammas[(t + 1) * (t + 2) // 2 :]
        # Three loops, because LLVM vectorises one only if few enough arrays could overlap.
        for k in range(t + 1):
            factor[k] = (off2_t[k] + b1[k] + won2_t[k] * gap1[k]) * (rate2_t[k] * inv)
        for k in range(t + 1):
            old = h[k]
            g[k] += old * step2_t[k]
            new = old * factor[k]
            h[k] = new if new > TINY else TINY
        for k in range(t + 2):
            m2 = mean2_t[k]
            row[k] = m2 + (mean1[k] - m2) * g[k] + h[k] * (inv1[k] + inv2_t[k])


@njit(**KERNEL, fastmath={"contract", "reassoc", "nsz", "nnan", "arcp"})
def _fill_normal(
    nu1: float, sd1: float, nu2: float, sd2: float, horizon: int, work: Floats, gammas: Floats
) -> None:
    """Gamma of two Gaussian arms at every point with sum n < T, into ``gammas``."""
    last = horizon - 1
    mean1, mean2, var1, var2 = work[MEAN1], work[MEAN2], work[_X1], work[_INV2]
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
            row[k] = (m1 if m1 > m2 else m2) + s * normal_excess(abs(m1 - m2) / s)


@njit(**KERNEL)
def _fill_any(
    family: int, nu1: float, nu2: float, horizon: int, work: Floats, gammas: Floats
) -> None:
    """The same for the two Gamma families, one incomplete beta function per point."""
    last = horizon - 1
    for t in range(horizon):
        for k in range(t + 1):
            n1 = nu1 + k
            n2 = nu2 + t - k
            gammas[t * (t + 1) // 2 + k] = _gamma_max(
                family, work[MEAN1, k] * n1, n1, work[MEAN2, last - t + k] * n2, n2
            )


@njit(**KERNEL, fastmath={"nsz", "nnan"})
def solve_2(horizon: int, work: Floats, gammas: Floats) -> tuple[float, int]:
    """Backward recursion; replaces Gamma in ``gammas`` by Z.  Returns the value and first arm."""
    last = horizon - 1
    mean1, mean2, z = work[MEAN1], work[MEAN2], work[_Z]
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
def fill(
    family: int,
    xi: Floats,
    nu: Floats,
    sd: Floats,
    g0: float,
    h0: float,
    horizon: int,
    work: Floats,
    gammas: Floats,
) -> None:
    if family == BETA_BERNOULLI:
        _fill_beta(xi[0], nu[0], xi[1], nu[1], g0, h0, horizon, work, gammas)
    elif family == NORMAL_NORMAL:
        _fill_normal(nu[0], sd[0], nu[1], sd[1], horizon, work, gammas)
    else:
        _fill_any(family, nu[0], nu[1], horizon, work, gammas)


@njit(**KERNEL)
def pair_start(family: int, xi: Floats, nu: Floats) -> tuple[float, float]:
    """g and h of two Beta arms at the current belief; zeros for the other families."""
    if family != BETA_BERNOULLI:
        return 0.0, 0.0
    a, b, c, d = xi[0], nu[0] - xi[0], xi[1], nu[1] - xi[1]
    return beta_exceeds(a, b, c, d), _beta_overlap(a, b, c, d)


@njit(**KERNEL)
def carry_pair(
    g: float, h: float, arm: int, won: bool, xi: Floats, nu: Floats
) -> tuple[float, float]:
    """g and h of two Beta arms after a reward of one of them, earned in belief (xi, nu) [2]."""
    mine = xi[arm] if won else nu[arm] - xi[arm]
    both = xi[0] + xi[1] if won else nu[0] + nu[1] - xi[0] - xi[1]
    after = g + (h / mine if won == (arm == 0) else -h / mine)
    return after, max(h * both * nu[arm] / (mine * (nu[0] + nu[1])), TINY)


@njit(cache=True, nogil=True, error_model="numpy")
def _batch_2(
    family: int,
    xi: Floats,
    nu: Floats,
    sd: Floats,
    rewards: NDArray[np.floating],
    values: Floats,
    first: NDArray[np.int16],
) -> None:
    horizon = rewards.shape[2]
    last = horizon - 1
    work = np.empty((ROWS, horizon + 1))
    gammas = np.empty(horizon * (horizon + 1) // 2)
    g0, h0 = pair_start(family, xi, nu)
    for s in range(rewards.shape[0]):
        x = xi[0]
        y = xi[1]
        for n in range(horizon):
            work[MEAN1, n] = x / (nu[0] + n)
            work[MEAN2, last - n] = y / (nu[1] + n)
            x += rewards[s, 0, n]
            y += rewards[s, 1, n]
        fill(family, xi, nu, sd, g0, h0, horizon, work, gammas)
        values[s], first[s] = solve_2(horizon, work, gammas)


# --- the functions others call ----------------------------------------------------------------


def emax_batch_2(
    family: int, xi: Floats, nu: Floats, noise_sd: Floats, rewards: NDArray[np.floating]
) -> tuple[Floats, NDArray[np.int16]]:
    """V-EMax inner problems of two arms along S outcomes.

    ``xi, nu, noise_sd`` [2], ``rewards`` [S, 2, T].  Returns the inner values, float64 [S], and the
    first arm of each optimal sequence, int16 [S]; ties go to arm 0.  Fast for Bernoulli and
    Gaussian rewards; the two Gamma families need an incomplete beta function at each lattice point.
    """
    if rewards.ndim != 3 or rewards.shape[1] != 2:
        raise ValueError(f"rewards must have shape [S, 2, T], got {rewards.shape}")
    values, first = np.empty(len(rewards)), np.empty(len(rewards), np.int16)
    _batch_2(family, xi, nu, noise_sd, rewards, values, first)
    return values, first
