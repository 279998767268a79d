"""Information-directed sampling on the CPU, for Bernoulli and for Gaussian rewards.

Russo and Van Roy (2018), "Learning to optimize via information-directed sampling".  Let A* be the
best arm, ``Delta_a = E[max_b mu_b - mu_a]`` the regret that pulling arm a is expected to cost now
and ``g_a`` what its reward tells about A*.  The policy draws the arm from the distribution pi that
minimises ``(sum_a pi_a Delta_a)^2 / sum_a pi_a g_a``; a mixture of two arms attains the minimum.

Two measures of information:

* ``mutual``: the mutual information I(A*; Y_a) with the next reward of the arm,
* ``variance``: the variance over A* of E[mu_a | A*], a lower bound on it but for a constant, which
  looks at means only and so is blind to differences in noise.

For arms with independent beliefs all of it follows from integrals over one variable, the value x
of the best mean.  With F_a and f_a the CDF and density of mu_a, ``h(x) = prod_b F_b(x)``,
``r_a = f_a / F_a`` and ``s_a(x) = E[mu_a | mu_a <= x]``,

    P(A* = a) = int h r_a,    P(A* = b) E[mu_a | A* = b] = int h r_b s_a  (a not b),  int h r_b x  (a = b).

0/1 rewards are determined by their mean, so the mutual information is a sum of divergences
``d(E[mu_a | A* = b], E[mu_a])``.  For Gaussian rewards it is the expected divergence of the
probabilities P(A* = b) before and after the reward, integrated over the reward.

**Bernoulli.**  Fixed Gauss-Legendre nodes, at which the CDFs are carried from period to period by
their one-step recurrence; between decisions only the pulled arm's tables change.

**Gaussian.**  Panels of eight Gauss-Legendre nodes, at most two standard deviations long in the
body of any arm's belief, laid out anew for every decision; arms that cannot be best any more
(more than seven standard deviations below) are left out.
"""

import math
from typing import Final

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from irsppl.inner.cpu.families import BETA_BERNOULLI, NORMAL_NORMAL
from irsppl.inner.cpu.index import _beta_start, _reward_array, _rows
from irsppl.inner.cpu.rng import KERNEL, seed_state, uniform

__all__ = ["MUTUAL", "VARIANCE", "ids_decide", "ids_mixture", "ids_paths"]

MUTUAL: Final = 0
VARIANCE: Final = 1

# Below this chance that another arm is better, the best arm is played without further ado.
_SETTLED: Final = 1e-14
# Arms whose chance to be best is this small a part of the chance that the leader is not are left
# out of the averages over A*.
_NEGLIGIBLE: Final = 1e-7
# A mixture must beat the best one so far by this factor, so that rounding does not break ties.
_TIE: Final = 1e-11
_FLOOR: Final = 1e-30
_TINY: Final = 1e-290
_BLOCK: Final = 8
_FAST: Final = {"contract", "reassoc", "nsz", "arcp"}

_REACH: Final = 7.0
_PANEL: Final = 2.0
_GL_X, _GL_W = np.polynomial.legendre.leggauss(_BLOCK)
_OUTCOMES: Final = 20
_GH_X, _GH_W = np.polynomial.hermite_e.hermegauss(_OUTCOMES)
_GH_W = _GH_W / _GH_W.sum()


# --- the mixture ------------------------------------------------------------------------------


@njit(**KERNEL)
def _ratio(delta: float, gain: float) -> float:
    return delta * delta / max(gain, _TINY)


@njit(**KERNEL)
def _minimise(
    delta: NDArray[np.float64], gain: NDArray[np.float64], count: int
) -> tuple[int, int, float]:
    """Arms i, j and the probability of i that minimise the information ratio.

    Along the mixtures of two arms the ratio is convex and its stationary point has a closed form.
    """
    first, second, share = 0, 0, 1.0
    best = _ratio(delta[0], gain[0])
    for i in range(1, count):
        value = _ratio(delta[i], gain[i])
        if value < best * (1.0 - _TIE):
            best, first, second = value, i, i
    for i in range(count):
        for j in range(i + 1, count):
            d = delta[i] - delta[j]
            g = gain[i] - gain[j]
            # A mixture helps only when the arm that costs more also tells more.
            if d * g <= 0.0:
                continue
            q = delta[j] / d - 2.0 * gain[j] / g
            if 0.0 < q < 1.0:
                value = _ratio(delta[j] + q * d, gain[j] + q * g)
                if value < best * (1.0 - _TIE):
                    best, first, second, share = value, i, j, q
    return first, second, share


@njit(**KERNEL)
def _divergence(p: float, q: float) -> float:
    """Between Bernoulli laws of means p and q."""
    d = p - q
    v = q * (1.0 - q)
    if v <= 0.0:
        return 0.0
    u = d / v
    if abs(u) < 1e-3:
        # Two terms of the series: the logarithms would cancel.
        return 0.5 * d * u * (1.0 - u * (1.0 - 2.0 * q) / 3.0)
    out = 0.0
    if p > 0.0:
        out += p * math.log(p / q)
    if p < 1.0:
        out += (1.0 - p) * math.log((1.0 - p) / (1.0 - q))
    return out


# --- from tables at nodes to regrets and information -------------------------------------------


@njit(**KERNEL, fastmath=_FAST)
def _dot(u: NDArray[np.float64], v: NDArray[np.float64], n: int) -> float:
    total = 0.0
    for j in range(n):
        total += u[j] * v[j]
    return total


@njit(**KERNEL, fastmath=_FAST)
def _times(
    u: NDArray[np.float64], v: NDArray[np.float64], n: int, out: NDArray[np.float64]
) -> None:
    for j in range(n):
        out[j] = u[j] * v[j]


@njit(**KERNEL)
def _moments(
    count: int,
    n: int,
    x: NDArray[np.float64],
    h: NDArray[np.float64],
    r: NDArray[np.float64],
    s: NDArray[np.float64],
    prob: NDArray[np.float64],
    cross: NDArray[np.float64],
    line: NDArray[np.float64],
) -> int:
    """P(A* = b) [K] and E[mu_a; A* = b] [K (b), K (a)]; returns the likeliest best arm.

    ``x, h`` [n] (``h`` includes the weights), ``r, s`` [K, n].  Arms that are hardly ever best get
    probability 0.
    """
    leader = 0
    for b in range(count):
        prob[b] = _dot(h, r[b], n)
        if prob[b] > prob[leader]:
            leader = b
    rest = 0.0
    for b in range(count):
        if b != leader:
            rest += prob[b]
    for b in range(count):
        if prob[b] < _NEGLIGIBLE * rest:
            prob[b] = 0.0
            continue
        _times(h, r[b], n, line)
        for a in range(count):
            cross[b, a] = _dot(line, x if a == b else s[a], n)
    return leader


@njit(**KERNEL)
def _score(
    form: int,
    count: int,
    prob: NDArray[np.float64],
    cross: NDArray[np.float64],
    delta: NDArray[np.float64],
    gain: NDArray[np.float64],
) -> None:
    """``delta`` and ``gain`` [K] from the moments; ``form`` MUTUAL is that of 0/1 rewards.

    The regret is summed over the cases in which another arm is best, each of them positive, so
    that it keeps its relative accuracy however small it becomes.
    """
    total = 0.0
    for b in range(count):
        total += prob[b]
    for a in range(count):
        mean = 0.0
        lost = 0.0
        for b in range(count):
            if prob[b] > 0.0:
                mean += cross[b, a]
                lost += cross[b, b] - cross[b, a]
        mean /= total
        told = 0.0
        for b in range(count):
            if prob[b] > 0.0:
                given = cross[b, a] / prob[b]
                if form == VARIANCE:
                    told += prob[b] * (given - mean) * (given - mean)
                else:
                    told += prob[b] * _divergence(min(max(given, 0.0), 1.0), mean)
        delta[a] = lost / total
        gain[a] = told / total


# --- Bernoulli rewards ------------------------------------------------------------------------


def _unit_nodes(alpha: NDArray, beta: NDArray, pulls: int) -> tuple[NDArray, NDArray]:
    """Nodes and weights on [0, 1] that resolve every belief met within ``pulls`` more rewards.

    Near 1/2, where they are widest apart, nodes lie at most 0.9 standard deviations of the
    narrowest belief apart.  Beta densities that are infinite at an end take nodes in the angle
    whose squared sine is x, where they are tame.
    """
    narrowest = float(np.max(alpha + beta)) + pulls
    ends = min(float(np.min(alpha)), float(np.min(beta)))
    density = 3.5 if ends >= 1.0 else 5.5
    size = max(48, _BLOCK * math.ceil(density * math.sqrt(narrowest) / _BLOCK))
    nodes, weights = np.polynomial.legendre.leggauss(size)
    if ends >= 1.0:
        return 0.5 * (nodes + 1.0), 0.5 * weights
    angle = 0.25 * np.pi * (nodes + 1.0)
    return np.sin(angle) ** 2, 0.25 * np.pi * weights * np.sin(2.0 * angle)


@njit(**KERNEL)
def _beta_tables(
    xi: float,
    nu: float,
    x: NDArray[np.float64],
    below: NDArray[np.float64],
    p: NDArray[np.float64],
) -> None:
    """CDF and x^a (1-x)^b / B(a, b) of one arm at the nodes."""
    for j in range(x.size):
        below[j], p[j] = _beta_start(xi, nu - xi, x[j])


@njit(**KERNEL, fastmath={"contract"})
def _beta_advance(
    reward: float,
    xi: float,
    nu: float,
    x: NDArray[np.float64],
    below: NDArray[np.float64],
    p: NDArray[np.float64],
) -> None:
    """Carry one arm's tables over a reward earned in belief (xi, nu)."""
    if reward > 0.5:
        inv = 1.0 / xi
        for j in range(x.size):
            q = p[j] * inv
            below[j] -= q
            q *= x[j] * nu
            p[j] = q if q > _TINY else _TINY
    else:
        inv = 1.0 / (nu - xi)
        for j in range(x.size):
            q = p[j] * inv
            below[j] += q
            q *= (1.0 - x[j]) * nu
            p[j] = q if q > _TINY else _TINY


@njit(**KERNEL, fastmath={"contract", "arcp"})
def _beta_derive(
    xi: float,
    nu: float,
    x: NDArray[np.float64],
    inside: NDArray[np.float64],
    below: NDArray[np.float64],
    p: NDArray[np.float64],
    cdf: NDArray[np.float64],
    r: NDArray[np.float64],
    s: NDArray[np.float64],
) -> None:
    """One arm's ``r = f / F`` and ``s = E[mu | mu <= x]``; ``inside`` is 1 / (x (1 - x)).

    The recurrence leaves F in the left tail as rounding error of either sign.  Any positive value
    will do there: ``r`` times the product of the CDFs cancels it, and ``s`` is kept in [0, x].
    """
    mean = xi / nu
    inv = 1.0 / xi
    for j in range(x.size):
        f = below[j]
        f = f if f > _FLOOR else _FLOOR
        cdf[j] = f
        f = 1.0 / f
        r[j] = p[j] * inside[j] * f
        given = mean * (1.0 - p[j] * inv * f)
        given = given if given > 0.0 else 0.0
        s[j] = given if given < x[j] else x[j]


@njit(**KERNEL, fastmath=_FAST)
def _product(
    count: int,
    weights: NDArray[np.float64],
    cdf: NDArray[np.float64],
    n: int,
    h: NDArray[np.float64],
) -> None:
    """``h`` [n]: weights times the product of the CDFs [K, n]."""
    for j in range(n):
        h[j] = weights[j]
    for a in range(count):
        row = cdf[a]
        for j in range(n):
            h[j] *= row[j]


@njit(**KERNEL)
def _greedy(xi: NDArray[np.float64], nu: NDArray[np.float64]) -> int:
    chosen = 0
    for a in range(1, xi.size):
        if xi[a] / nu[a] > xi[chosen] / nu[chosen]:
            chosen = a
    return chosen


@njit(**KERNEL)
def _beta_mixture(
    form: int,
    x: NDArray[np.float64],
    weights: NDArray[np.float64],
    cdf: NDArray[np.float64],
    r: NDArray[np.float64],
    s: NDArray[np.float64],
    small: NDArray[np.float64],
    cross: NDArray[np.float64],
    lines: NDArray[np.float64],
) -> tuple[int, int, float]:
    """Arms i, j and the probability of i."""
    count = cdf.shape[0]
    n = x.size
    prob, delta, gain = small[0], small[1], small[2]
    _product(count, weights, cdf, n, lines[0])
    leader = _moments(count, n, x, lines[0], r, s, prob, cross, lines[1])
    rest = 0.0
    for b in range(count):
        if b != leader:
            rest += prob[b]
    if rest < _SETTLED:
        return leader, leader, 1.0
    _score(form, count, prob, cross, delta, gain)
    return _minimise(delta, gain, count)


@njit(**KERNEL)
def _draw(state: NDArray[np.uint64], first: int, second: int, share: float) -> int:
    if first == second:
        return first
    return first if uniform(state) < share else second


@njit(cache=True, nogil=True, error_model="numpy")
def _beta_paths(
    form: int,
    xi0: NDArray[np.float64],
    nu0: NDArray[np.float64],
    x: NDArray[np.float64],
    weights: NDArray[np.float64],
    remaining: int,
    rewards: NDArray,
    seeds: NDArray[np.uint64],
    actions: NDArray[np.int16],
) -> None:
    """Fill ``actions`` [S, P], the first P decisions of every replication."""
    num_arms = xi0.size
    n = x.size
    inside = 1.0 / (x * (1.0 - x))
    start = np.empty((5, num_arms, n))
    for a in range(num_arms):
        _beta_tables(xi0[a], nu0[a], x, start[0, a], start[1, a])
        _beta_derive(
            xi0[a],
            nu0[a],
            x,
            inside,
            start[0, a],
            start[1, a],
            start[2, a],
            start[3, a],
            start[4, a],
        )
    tables = np.empty_like(start)
    below, p, cdf, r, s = tables[0], tables[1], tables[2], tables[3], tables[4]
    small = np.empty((3, num_arms))
    cross = np.empty((num_arms, num_arms))
    lines = np.empty((2, n))
    xi = np.empty(num_arms)
    nu = np.empty(num_arms)
    pulls = np.empty(num_arms, np.int64)
    state = np.empty(4, np.uint64)
    # Nothing has been seen in period 0, so every replication begins with the same mixture.
    opening = _beta_mixture(form, x, weights, start[2], start[3], start[4], small, cross, lines)
    for i in range(seeds.size):
        seed_state(seeds[i], state)
        tables[:] = start
        xi[:] = xi0
        nu[:] = nu0
        pulls[:] = 0
        for t in range(actions.shape[1]):
            if t == remaining - 1:
                a = _greedy(xi, nu)
            else:
                if t == 0:
                    first, second, share = opening
                else:
                    first, second, share = _beta_mixture(
                        form, x, weights, cdf, r, s, small, cross, lines
                    )
                a = _draw(state, first, second, share)
            actions[i, t] = a
            reward = float(rewards[i, a, pulls[a]])
            pulls[a] += 1
            _beta_advance(reward, xi[a], nu[a], x, below[a], p[a])
            xi[a] += reward
            nu[a] += 1.0
            _beta_derive(xi[a], nu[a], x, inside, below[a], p[a], cdf[a], r[a], s[a])


# --- Gaussian rewards -------------------------------------------------------------------------

_STEP: Final = 1.0 / 64.0
_LAST: Final = 8.0
_POINTS: Final = np.arange(round(2 * _LAST / _STEP) + 1) * _STEP - _LAST
_CDF: Final = np.array([0.5 * math.erfc(-z / math.sqrt(2.0)) for z in _POINTS])
_PDF: Final = np.exp(-0.5 * _POINTS**2) / math.sqrt(2.0 * math.pi)


@njit(**KERNEL, fastmath={"contract"})
def _normal(z: float) -> tuple[float, float]:
    """CDF and density of the standard normal law, |z| <= 8, by Taylor's formula from a table.

    Relative accuracy 1e-9 for z > -7, without a call of erfc or exp.
    """
    i = np.int64((z + _LAST) * (1.0 / _STEP) + 0.5)
    c = i * _STEP - _LAST
    d = z - c
    cc = c * c
    # Derivatives of the density are Hermite polynomials times it.
    h2 = cc - 1.0
    h3 = c * (3.0 - cc)
    h4 = cc * (cc - 6.0) + 3.0
    h5 = -c * (cc * (cc - 10.0) + 15.0)
    f = _PDF[i]
    slope = 1.0 + d * (-c + d * (h2 / 2.0 + d * (h3 / 6.0 + d * (h4 / 24.0 + d * h5 / 120.0))))
    area = 1.0 + d * (-c / 2.0 + d * (h2 / 6.0 + d * (h3 / 24.0 + d * h4 / 120.0)))
    return _CDF[i] + d * f * area, f * slope


@njit(**KERNEL)
def _panels(
    count: int,
    m: NDArray[np.float64],
    v: NDArray[np.float64],
    finest: NDArray[np.float64],
    x: NDArray[np.float64],
    w: NDArray[np.float64],
) -> int:
    """Nodes and weights over the range of the best mean; returns how many.

    ``m, v`` [K]: mean and standard deviation of the arms' means; ``finest`` [K]: the scale at
    which functions of arm a vary, no more than ``v[a]``.
    """
    low = -np.inf
    high = -np.inf
    for a in range(count):
        low = max(low, m[a] - _REACH * v[a])
        high = max(high, m[a] + _REACH * v[a])
    n = 0
    place = low
    while place < high and n + _BLOCK <= x.size:
        step = high - place
        for a in range(count):
            ahead = m[a] - _REACH * v[a] - place
            if ahead > 0.0:
                step = min(step, max(ahead, _PANEL * finest[a]))
            elif place < m[a] + _REACH * v[a]:
                step = min(step, _PANEL * finest[a])
        half = 0.5 * step
        for j in range(_BLOCK):
            x[n] = place + half * (1.0 + _GL_X[j])
            w[n] = half * _GL_W[j]
            n += 1
        place += step
    return n


@njit(**KERNEL)
def _gaussian_tables(
    n: int,
    m: float,
    v: float,
    x: NDArray[np.float64],
    cdf: NDArray[np.float64],
    r: NDArray[np.float64],
    s: NDArray[np.float64],
) -> None:
    """One arm's CDF, ``r`` and ``s`` at the nodes."""
    inv = 1.0 / v
    vv = v * v
    for j in range(n):
        z = min(max((x[j] - m) * inv, -_LAST), _LAST)
        below, density = _normal(z)
        cdf[j] = below
        ratio = density * inv / below
        r[j] = ratio
        s[j] = m - vv * ratio


@njit(**KERNEL)
def _gaussian_information(
    count: int,
    n: int,
    arm: int,
    m: float,
    v: float,
    noise: float,
    x: NDArray[np.float64],
    h: NDArray[np.float64],
    cdf: NDArray[np.float64],
    r: NDArray[np.float64],
    prob: NDArray[np.float64],
    after: NDArray[np.float64],
    lines: NDArray[np.float64],
    others: NDArray[np.float64],
) -> float:
    """I(A*; Y) for the reward Y of one arm.

    The reward moves the arm's mean to ``m + v c z``, z standard normal and c^2 = v^2 / (v^2 +
    noise^2), and leaves it the standard deviation ``v noise / sqrt(v^2 + noise^2)``.
    """
    total = 0.0
    for b in range(count):
        total += prob[b]
        if b != arm and prob[b] > 0.0:
            for j in range(n):
                others[b, j] = h[j] * r[b, j] / cdf[arm, j]
    spread = math.sqrt(v * v + noise * noise)
    moved = v * v / spread
    left = 1.0 / (v * noise / spread)
    line = lines[1]
    told = 0.0
    for k in range(_OUTCOMES):
        centre = m + moved * _GH_X[k]
        own = 0.0
        for j in range(n):
            z = min(max((x[j] - centre) * left, -_LAST), _LAST)
            below, density = _normal(z)
            line[j] = below
            own += h[j] / cdf[arm, j] * density
        own *= left
        mass = own
        after[arm] = own
        for b in range(count):
            if b != arm and prob[b] > 0.0:
                after[b] = _dot(others[b], line, n)
                mass += after[b]
        inner = 0.0
        for b in range(count):
            if prob[b] > 0.0 and after[b] > 0.0:
                share = after[b] / mass
                inner += share * math.log(share * total / prob[b])
        told += _GH_W[k] * inner
    return told


@njit(cache=True, nogil=True, error_model="numpy")
def _gaussian_paths(
    form: int,
    xi0: NDArray[np.float64],
    nu0: NDArray[np.float64],
    noise: NDArray[np.float64],
    remaining: int,
    rewards: NDArray,
    seeds: NDArray[np.uint64],
    actions: NDArray[np.int16],
    capacity: int,
) -> None:
    num_arms = xi0.size
    x = np.empty(capacity)
    w = np.empty(capacity)
    cdf = np.empty((num_arms, capacity))
    r = np.empty((num_arms, capacity))
    s = np.empty((num_arms, capacity))
    others = np.empty((num_arms, capacity))
    lines = np.empty((2, capacity))
    small = np.empty((8, num_arms))
    cross = np.empty((num_arms, num_arms))
    xi = np.empty(num_arms)
    nu = np.empty(num_arms)
    pulls = np.empty(num_arms, np.int64)
    state = np.empty(4, np.uint64)
    arms = np.empty(num_arms, np.int64)
    prob, delta, gain, m, v, finest, after = (
        small[0],
        small[1],
        small[2],
        small[3],
        small[4],
        small[5],
        small[6],
    )
    for i in range(seeds.size):
        seed_state(seeds[i], state)
        xi[:] = xi0
        nu[:] = nu0
        pulls[:] = 0
        for t in range(actions.shape[1]):
            if t == remaining - 1:
                a = _greedy(xi, nu)
            else:
                low = -np.inf
                for a in range(num_arms):
                    low = max(low, xi[a] / nu[a] - _REACH * noise[a] / math.sqrt(nu[a]))
                count = 0
                for a in range(num_arms):
                    mean = xi[a] / nu[a]
                    sd = noise[a] / math.sqrt(nu[a])
                    if mean + _REACH * sd > low:
                        arms[count] = a
                        m[count] = mean
                        v[count] = sd
                        finest[count] = sd
                        if form == 0:
                            finest[count] = sd * noise[a] / math.sqrt(sd * sd + noise[a] ** 2)
                        count += 1
                first, second, share = 0, 0, 1.0
                if count > 1:
                    n = _panels(count, m, v, finest, x, w)
                    for b in range(count):
                        _gaussian_tables(n, m[b], v[b], x, cdf[b], r[b], s[b])
                    _product(count, w, cdf, n, lines[0])
                    leader = _moments(count, n, x, lines[0], r, s, prob, cross, lines[1])
                    _score(1, count, prob, cross, delta, gain)
                    for b in range(count):
                        if form == 0:
                            gain[b] = _gaussian_information(
                                count,
                                n,
                                b,
                                m[b],
                                v[b],
                                noise[arms[b]],
                                x,
                                lines[0],
                                cdf,
                                r,
                                prob,
                                after,
                                lines,
                                others,
                            )
                        elif form == 2:
                            gain[b] /= noise[arms[b]] ** 2
                        elif form == 3:
                            gain[b] /= noise[arms[b]] ** 2 + v[b] ** 2
                    first, second, share = _minimise(delta, gain, count)
                a = arms[_draw(state, first, second, share)]
            actions[i, t] = a
            xi[a] += rewards[i, a, pulls[a]]
            pulls[a] += 1
            nu[a] += 1.0
