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

    P(A* = b) = int h r_b,
    P(A* = b) E[mu_a | A* = b] = int h r_b s_a  (a not b),    int h r_b x  (a = b).

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

__all__ = ["MUTUAL", "VARIANCE", "ids_decide", "ids_paths", "ids_terms"]

MUTUAL: Final = 0
VARIANCE: Final = 1

# Below this chance that another arm is better, the best arm is played without further ado.
_SETTLED: Final = 1e-14
# Arms whose chance to be best is this small a part of the chance that the leader is not are left
# out of the averages over A*.
_NEGLIGIBLE: Final = 1e-7
# A mixture must beat the best one so far by this factor, so that rounding does not break ties.
_TIE: Final = 1e-11
# Least CDF (products of many must not become denormal) and least density term.
_FLOOR: Final = 1e-30
_TINY: Final = 1e-290
# Lets the sums run in vector registers.
_FAST: Final = {"contract", "reassoc", "nsz", "arcp"}

# Gaussian beliefs are cut this many standard deviations from their mean; length of a panel.
_REACH: Final = 7.0
_PANEL: Final = 2.0
_BLOCK: Final = 8
_GL_X, _GL_W = np.polynomial.legendre.leggauss(_BLOCK)
# Rewards at which the mutual information of a Gaussian arm is evaluated.
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


@njit(**KERNEL, fastmath=_FAST)
def _normal_law(
    n: int,
    x: NDArray[np.float64],
    centre: float,
    inv: float,
    below: NDArray[np.float64],
    density: NDArray[np.float64],
) -> None:
    """CDF and density of the standard normal law at ``(x - centre) inv``, cut at +-8.

    Taylor's formula from a table, without a call of erfc or exp, so that the loop runs in vector
    registers.  Relative accuracy 1e-9 from -7 on.
    """
    for j in range(n):
        z = (x[j] - centre) * inv
        z = z if z < _LAST else _LAST
        z = z if z > -_LAST else -_LAST
        i = np.int64((z + _LAST) * (1.0 / _STEP) + 0.5)
        c = i * _STEP - _LAST
        d = z - c
        cc = c * c
        # Derivatives of the density are Hermite polynomials times it.
        h2 = cc - 1.0
        h3 = c * (3.0 - cc)
        h4 = cc * (cc - 6.0) + 3.0
        f = _PDF[i]
        density[j] = f * (1.0 + d * (-c + d * (h2 / 2.0 + d * (h3 / 6.0 + d * h4 / 24.0))))
        area = 1.0 + d * (-c / 2.0 + d * (h2 / 6.0 + d * (h3 / 24.0 + d * h4 / 120.0)))
        below[j] = _CDF[i] + d * f * area


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


@njit(**KERNEL, fastmath=_FAST)
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
    _normal_law(n, x, m, inv, cdf, r)
    for j in range(n):
        ratio = r[j] * inv / cdf[j]
        r[j] = ratio
        s[j] = m - vv * ratio


@njit(**KERNEL)
def _narrowing(form: int, nu: float) -> float:
    """How much finer than an arm's belief the nodes must be.

    A reward narrows the belief by sqrt(1 + 1/nu), and the mutual information looks at what it
    leaves.  Where a first reward tells nearly everything a coarser look must do.
    """
    return min(math.sqrt(1.0 + 1.0 / nu), 40.0) if form == MUTUAL else 1.0


@njit(**KERNEL)
def _gaussian_information(
    count: int,
    n: int,
    arm: int,
    noise: float,
    x: NDArray[np.float64],
    tables: NDArray[np.float64],
    small: NDArray[np.float64],
    lines: NDArray[np.float64],
) -> float:
    """I(A*; Y) for the reward Y of one arm; the arrays are those of :func:`_gaussian_moments`.

    With v the standard deviation of the arm's mean m, a reward moves the mean to ``m + v c z``, z
    standard normal and c^2 = v^2 / (v^2 + noise^2), and leaves it the standard deviation
    ``v noise / sqrt(v^2 + noise^2)``.
    """
    cdf, r, others = tables[0], tables[1], tables[3]
    h = lines[0]
    prob, after = small[0], small[6]
    m, v = small[3, arm], small[4, arm]
    total = 0.0
    for b in range(count):
        total += prob[b]
    own = others[arm]
    for j in range(n):
        own[j] = h[j] / cdf[arm, j]
    for b in range(count):
        if b != arm and prob[b] > 0.0:
            _times(own, r[b], n, others[b])
    spread = math.sqrt(v * v + noise * noise)
    moved = v * v / spread
    left = spread / (v * noise)
    told = 0.0
    for k in range(_OUTCOMES):
        _normal_law(n, x, m + moved * _GH_X[k], left, lines[1], lines[2])
        mass = 0.0
        for b in range(count):
            if prob[b] > 0.0:
                if b == arm:
                    after[b] = _dot(own, lines[2], n) * left
                else:
                    after[b] = _dot(others[b], lines[1], n)
                mass += after[b]
        inner = 0.0
        for b in range(count):
            if prob[b] > 0.0 and after[b] > 0.0:
                share = after[b] / mass
                inner += share * math.log(share * total / prob[b])
        told += _GH_W[k] * inner
    # A tiny expectation of terms of both signs can come out as rounding below zero.
    return max(told, 0.0)


@njit(**KERNEL)
def _gaussian_moments(
    form: int,
    xi: NDArray[np.float64],
    nu: NDArray[np.float64],
    noise: NDArray[np.float64],
    arms: NDArray[np.int64],
    x: NDArray[np.float64],
    w: NDArray[np.float64],
    tables: NDArray[np.float64],
    small: NDArray[np.float64],
    cross: NDArray[np.float64],
    lines: NDArray[np.float64],
) -> tuple[int, int, int]:
    """Regrets, and information by variance, of the arms that may be best.

    Those arms are listed in ``arms``, and rows of ``tables`` [4, K, nodes] (CDF, r, s, scratch) and
    of ``small`` [8, K] (probability, regret, information, mean, standard deviation, and three of
    scratch) follow that list.  Returns the length of the list, the number of nodes, and the place
    in the list of an arm that is surely best, or -1.
    """
    m, v, finest = small[3], small[4], small[5]
    low = -np.inf
    for a in range(xi.size):
        low = max(low, xi[a] / nu[a] - _REACH * noise[a] / math.sqrt(nu[a]))
    count = 0
    for a in range(xi.size):
        mean = xi[a] / nu[a]
        sd = noise[a] / math.sqrt(nu[a])
        if mean + _REACH * sd > low:
            arms[count] = a
            m[count] = mean
            v[count] = sd
            finest[count] = sd / _narrowing(form, nu[a])
            count += 1
    if count == 1:
        return 1, 0, 0
    n = _panels(count, m, v, finest, x, w)
    for b in range(count):
        _gaussian_tables(n, m[b], v[b], x, tables[0, b], tables[1, b], tables[2, b])
    _product(count, w, tables[0], n, lines[0])
    leader = _moments(count, n, x, lines[0], tables[1], tables[2], small[0], cross, lines[1])
    rest = 0.0
    for b in range(count):
        if b != leader:
            rest += small[0, b]
    if rest < _SETTLED:
        return count, n, leader
    _score(VARIANCE, count, small[0], cross, small[1], small[2])
    return count, n, -1


@njit(**KERNEL)
def _gaussian_mixture(
    form: int,
    xi: NDArray[np.float64],
    nu: NDArray[np.float64],
    noise: NDArray[np.float64],
    arms: NDArray[np.int64],
    x: NDArray[np.float64],
    w: NDArray[np.float64],
    tables: NDArray[np.float64],
    small: NDArray[np.float64],
    cross: NDArray[np.float64],
    lines: NDArray[np.float64],
) -> tuple[int, int, float]:
    """Arms i, j and the probability of i."""
    count, n, settled = _gaussian_moments(
        form, xi, nu, noise, arms, x, w, tables, small, cross, lines
    )
    if settled >= 0:
        return arms[settled], arms[settled], 1.0
    delta, gain, known = small[1], small[2], small[7]
    if form == MUTUAL:
        # No reward tells more of A* than of its own arm's mean.  With that bound in place of the
        # information, an arm that the best mixture leaves out need not be looked at.
        for b in range(count):
            known[b] = 0.0
            gain[b] = 0.5 * math.log1p(1.0 / nu[arms[b]])
    while True:
        first, second, share = _minimise(delta, gain, count)
        if form == VARIANCE or known[first] + known[second] == 2.0:
            return arms[first], arms[second], share
        for b in (first, second):
            if known[b] == 0.0:
                known[b] = 1.0
                gain[b] = _gaussian_information(
                    count, n, b, noise[arms[b]], x, tables, small, lines
                )


def _gaussian_work(form: int, nu: NDArray) -> tuple[NDArray, ...]:
    """Arrays arms, x, w, tables, small, cross, lines of :func:`_gaussian_moments`.

    There is room for the panels of any arrangement of the arms: each arm's body is crossed in
    steps of two standard deviations or more, and takes a step or two beside it.
    """
    num_arms = nu.size
    steps = [math.ceil(2.0 * _REACH / _PANEL * _narrowing(form, n)) + 3 for n in nu.tolist()]
    capacity = _BLOCK * (sum(steps) + 1)
    return (
        np.empty(num_arms, np.int64),
        np.empty(capacity),
        np.empty(capacity),
        np.empty((4, num_arms, capacity)),
        np.empty((8, num_arms)),
        np.empty((num_arms, num_arms)),
        np.empty((3, capacity)),
    )


@njit(**KERNEL)
def _gaussian_paths(
    form: int,
    xi0: NDArray[np.float64],
    nu0: NDArray[np.float64],
    noise: NDArray[np.float64],
    remaining: int,
    rewards: NDArray,
    seeds: NDArray[np.uint64],
    state: NDArray[np.uint64],
    belief: NDArray[np.float64],
    pulls: NDArray[np.int64],
    arms: NDArray[np.int64],
    x: NDArray[np.float64],
    w: NDArray[np.float64],
    tables: NDArray[np.float64],
    small: NDArray[np.float64],
    cross: NDArray[np.float64],
    lines: NDArray[np.float64],
    actions: NDArray[np.int16],
) -> None:
    """Fill ``actions`` [S, P], the first P decisions; what stands between are work arrays."""
    xi, nu = belief[0], belief[1]
    # Every replication begins with the same mixture.
    opening = _gaussian_mixture(form, xi0, nu0, noise, arms, x, w, tables, small, cross, lines)
    for i in range(seeds.size):
        seed_state(seeds[i], state)
        for a in range(xi0.size):
            xi[a], nu[a], pulls[a] = xi0[a], nu0[a], 0
        for t in range(actions.shape[1]):
            if t == remaining - 1:
                a = _greedy(xi, nu)
            else:
                first, second, share = opening
                if t > 0:
                    first, second, share = _gaussian_mixture(
                        form, xi, nu, noise, arms, x, w, tables, small, cross, lines
                    )
                a = _draw(state, first, second, share)
            actions[i, t] = a
            xi[a] += rewards[i, a, pulls[a]]
            pulls[a] += 1
            nu[a] += 1.0


# --- the functions others call ----------------------------------------------------------------


def _check(family: int, form: int) -> None:
    if family not in (BETA_BERNOULLI, NORMAL_NORMAL):
        raise ValueError(
            f"family must be {BETA_BERNOULLI} (Bernoulli) or {NORMAL_NORMAL} (Gaussian rewards), "
            f"got {family!r}"
        )
    if form not in (MUTUAL, VARIANCE):
        raise ValueError(f"form must be MUTUAL or VARIANCE, got {form!r}")


def ids_paths(
    family: int,
    xi: ArrayLike,
    nu: ArrayLike,
    noise_sd: ArrayLike,
    rewards: ArrayLike,
    seeds: ArrayLike,
    form: int = MUTUAL,
    *,
    remaining: int | None = None,
) -> NDArray[np.int16]:
    """Play information-directed sampling, once per replication.

    Parameters
    ----------
    family
        ``BETA_BERNOULLI`` or ``NORMAL_NORMAL`` of :mod:`irsppl.inner.cpu.families`.
    xi, nu, noise_sd
        [K]: the belief at the start.
    rewards
        [S, K, P]: pull number n of arm a from now on earns ``rewards[s, a, n]`` in replication s.
    seeds
        uint64 [S], from :func:`irsppl.inner.cpu.rng.streams`.
    form
        ``MUTUAL`` or ``VARIANCE``.
    remaining
        Periods left at the start, P if omitted; in the last one the myopic arm is played.

    Returns
    -------
    int16 [S, P]
        The arm pulled in each period.
    """
    _check(family, form)
    earned = _reward_array(rewards)
    if earned.ndim != 3:
        raise ValueError(f"rewards must have shape [S, K, P], got {earned.shape}")
    num_runs, num_arms, periods = earned.shape
    x, n, s = _rows(xi, nu, noise_sd, (num_arms,))
    streams = np.ascontiguousarray(np.broadcast_to(np.asarray(seeds, np.uint64), (num_runs,)))
    left = periods if remaining is None else int(remaining)
    actions = np.empty((num_runs, periods), np.int16)
    if family == BETA_BERNOULLI:
        nodes, weights = _unit_nodes(x, n - x, periods)
        _beta_paths(form, x, n, nodes, weights, left, earned, streams, actions)
    else:
        _gaussian_paths(
            form,
            x,
            n,
            s,
            left,
            earned,
            streams,
            np.empty(4, np.uint64),
            np.empty((2, num_arms)),
            np.empty(num_arms, np.int64),
            *_gaussian_work(form, n),
            actions,
        )
    return actions


def ids_decide(
    family: int,
    xi: ArrayLike,
    nu: ArrayLike,
    noise_sd: ArrayLike,
    remaining: int,
    seeds: ArrayLike,
    form: int = MUTUAL,
) -> NDArray[np.int16]:
    """One decision from one state for each of S seeds, int16 [S]; arguments of `ids_paths`."""
    streams = np.atleast_1d(np.asarray(seeds, np.uint64))
    # One period is played; what it earns is not looked at again.
    unseen = np.zeros((streams.size, np.shape(xi)[-1], 1))
    return ids_paths(
        family, xi, nu, noise_sd, unseen, streams, form, remaining=max(int(remaining), 1)
    )[:, 0]


def ids_terms(
    family: int, xi: ArrayLike, nu: ArrayLike, noise_sd: ArrayLike, form: int = MUTUAL
) -> tuple[NDArray[np.float64], NDArray[np.float64], tuple[int, int, float]]:
    """Regret [K], information [K], and the best mixture (i, j, probability of i), for checks.

    Arms that surely are not best have information 0.
    """
    _check(family, form)
    num_arms = np.shape(xi)[-1]
    m, n, s = _rows(xi, nu, noise_sd, (num_arms,))
    delta, gain = np.zeros(num_arms), np.zeros(num_arms)
    if family == BETA_BERNOULLI:
        nodes, weights = _unit_nodes(m, n - m, 1)
        inside = 1.0 / (nodes * (1.0 - nodes))
        tables = np.empty((5, num_arms, nodes.size))
        for a in range(num_arms):
            _beta_tables(m[a], n[a], nodes, tables[0, a], tables[1, a])
            _beta_derive(m[a], n[a], nodes, inside, *tables[:, a])
        small, cross = np.empty((3, num_arms)), np.empty((num_arms, num_arms))
        lines = np.empty((2, nodes.size))
        mixture = _beta_mixture(form, nodes, weights, *tables[2:], small, cross, lines)
        _score(form, num_arms, small[0], cross, delta, gain)
        return delta, gain, mixture
    work = _gaussian_work(form, n)
    arms, x, _, tables, small, _, lines = work
    mixture = _gaussian_mixture(form, m, n, s, *work)
    count, size, _ = _gaussian_moments(form, m, n, s, *work)
    delta[:] = small[1, 0] + small[3, 0] - m / n  # regrets differ as the means do
    for b in range(count):
        delta[arms[b]] = small[1, b]
        gain[arms[b]] = small[2, b]
        if form == MUTUAL:
            gain[arms[b]] = _gaussian_information(
                count, size, b, s[arms[b]], x, tables, small, lines
            )
    return delta, gain, mixture
