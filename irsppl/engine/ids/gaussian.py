"""Information-directed sampling with Gaussian rewards.

Panels of eight Gauss-Legendre nodes, at most two standard deviations long in the body of any arm's
belief, laid out anew for every decision; arms that cannot be best any more (more than seven
standard deviations below) are left out.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np

from irsppl.engine import verbs
from irsppl.engine.ids.mixture import (
    FAST,
    MUTUAL,
    VARIANCE,
    dot,
    drawn,
    keep,
    minimise,
    moments,
    score,
    times,
)
from irsppl.engine.verbs import implements
from irsppl.inner.arrays import Floats, Ints
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.rng import KERNEL

# Gaussian beliefs are cut this many standard deviations from their mean; length of a panel.
_REACH: Final = 7.0
_PANEL: Final = 2.0
_BLOCK: Final = 8
_GL_X, _GL_W = np.polynomial.legendre.leggauss(_BLOCK)
# Rewards at which the mutual information of a Gaussian arm is evaluated.
_OUTCOMES: Final = 20
_GH_X, _GH_W = np.polynomial.hermite_e.hermegauss(_OUTCOMES)
_GH_W = _GH_W / _GH_W.sum()

_STEP: Final = 1.0 / 64.0
_LAST: Final = 8.0
_POINTS: Final = np.arange(round(2 * _LAST / _STEP) + 1) * _STEP - _LAST
_CDF: Final = np.array([0.5 * math.erfc(-z / math.sqrt(2.0)) for z in _POINTS])
_PDF: Final = np.exp(-0.5 * _POINTS**2) / math.sqrt(2.0 * math.pi)


class Gaussian(NamedTuple):
    """Work arrays of the decision, and the mixtures at the start and now.

    ``arms`` lists the arms that may be best; rows of ``tables`` and ``small`` follow that list.
    """

    form: int
    arms: Ints  # [K]
    x: Floats  # [n] nodes,
    w: Floats  # [n] and their weights
    tables: Floats  # [4, K, n] CDF, r, s, scratch
    # [8, K] probability, regret, information, mean, standard deviation, and three of scratch
    small: Floats
    cross: Floats  # [K, K]
    lines: Floats  # [3, n]
    first_nu: Floats  # [K] counts at the start,
    nu: Floats  # [K] and those that the mixture belongs to
    opening: Floats  # [3] the first mixture: arms i, j, probability of i; i < 0: new
    mixture: Floats  # [3]


def gaussian_rule(form: int, nu: Any) -> Gaussian:
    """Arms with pseudo-counts nu [K].

    There is room for the panels of any arrangement of the arms: each arm's body is crossed in
    steps of two standard deviations or more, and takes a step or two beside it.
    """
    nu = np.array(nu, np.float64)
    arms = nu.size
    steps = [math.ceil(2.0 * _REACH / _PANEL * _narrowing(form, n)) + 3 for n in nu.tolist()]
    capacity = _BLOCK * (sum(steps) + 1)
    nodes = (np.empty(capacity), np.empty(capacity))
    tables = (np.empty((4, arms, capacity)), np.empty((8, arms)), np.empty((arms, arms)))
    none = (np.full(3, -1.0), np.full(3, -1.0))
    listed, lines = np.empty(arms, np.int64), np.empty((3, capacity))
    return Gaussian(form, listed, *nodes, *tables, lines, nu, nu.copy(), *none)


@njit(**KERNEL, fastmath=FAST)
def _normal_law(
    n: int, x: Floats, centre: float, inv: float, below: Floats, density: Floats
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
def _panels(count: int, m: Floats, v: Floats, finest: Floats, x: Floats, w: Floats) -> int:
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


@njit(**KERNEL, fastmath=FAST)
def _gaussian_tables(
    n: int, m: float, v: float, x: Floats, cdf: Floats, r: Floats, s: Floats
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
def gaussian_information(rule: Gaussian, count: int, n: int, arm: int, noise: float) -> float:
    """I(A*; Y) for the reward Y of one arm, after :func:`gaussian_moments`.

    With v the standard deviation of the arm's mean m, a reward moves the mean to ``m + v c z``, z
    standard normal and c^2 = v^2 / (v^2 + noise^2), and leaves it the standard deviation
    ``v noise / sqrt(v^2 + noise^2)``.
    """
    cdf, r, others = rule.tables[0], rule.tables[1], rule.tables[3]
    h, below, density = rule.lines[0], rule.lines[1], rule.lines[2]
    prob, after = rule.small[0], rule.small[6]
    m, v = rule.small[3, arm], rule.small[4, arm]
    total = 0.0
    for b in range(count):
        total += prob[b]
    own = others[arm]
    for j in range(n):
        own[j] = h[j] / cdf[arm, j]
    for b in range(count):
        if b != arm and prob[b] > 0.0:
            times(own, r[b], n, others[b])
    spread = math.sqrt(v * v + noise * noise)
    moved = v * v / spread
    left = spread / (v * noise)
    information = 0.0
    for k in range(_OUTCOMES):
        _normal_law(n, rule.x, m + moved * _GH_X[k], left, below, density)
        mass = 0.0
        for b in range(count):
            if prob[b] > 0.0:
                if b == arm:
                    after[b] = dot(own, density, n) * left
                else:
                    after[b] = dot(others[b], below, n)
                mass += after[b]
        inner = 0.0
        for b in range(count):
            if prob[b] > 0.0 and after[b] > 0.0:
                share = after[b] / mass
                inner += share * math.log(share * total / prob[b])
        information += _GH_W[k] * inner
    # A tiny expectation of terms of both signs can come out as rounding below zero.
    return max(information, 0.0)


@njit(**KERNEL)
def gaussian_moments(rule: Gaussian, xi: Floats, nu: Floats, noise: Floats) -> tuple[int, int, int]:
    """Regrets, and information by variance, of the arms that may be best.

    Returns how many they are, the number of nodes, and the place in the list of an arm that is
    surely best, or -1.
    """
    x, tables, small = rule.x, rule.tables, rule.small
    m, v, finest = small[3], small[4], small[5]
    low = -np.inf
    for a in range(xi.size):
        low = max(low, xi[a] / nu[a] - _REACH * noise[a] / math.sqrt(nu[a]))
    count = 0
    for a in range(xi.size):
        mean = xi[a] / nu[a]
        sd = noise[a] / math.sqrt(nu[a])
        if mean + _REACH * sd > low:
            rule.arms[count] = a
            m[count] = mean
            v[count] = sd
            finest[count] = sd / _narrowing(rule.form, nu[a])
            count += 1
    if count == 1:
        return 1, 0, 0
    n = _panels(count, m, v, finest, x, rule.w)
    cdf, r, s = tables[0], tables[1], tables[2]
    for b in range(count):
        _gaussian_tables(n, m[b], v[b], x, cdf[b], r[b], s[b])
    sure = moments(count, n, x, rule.w, cdf, r, s, small[0], rule.cross, rule.lines)
    if sure < 0:
        score(VARIANCE, count, small[0], rule.cross, small[1], small[2])
    return count, n, sure


@njit(**KERNEL)
def gaussian_mixture(
    rule: Gaussian, xi: Floats, nu: Floats, noise: Floats
) -> tuple[int, int, float]:
    """Arms i, j and the probability of i."""
    arms = rule.arms
    count, n, sure = gaussian_moments(rule, xi, nu, noise)
    if sure >= 0:
        return arms[sure], arms[sure], 1.0
    delta, gain, known = rule.small[1], rule.small[2], rule.small[7]
    if rule.form == MUTUAL:
        # No reward tells more of A* than of its own arm's mean.  With that bound in place of the
        # information, an arm that the best mixture leaves out need not be looked at.
        for b in range(count):
            known[b] = 0.0
            gain[b] = 0.5 * math.log1p(1.0 / nu[arms[b]])
    while True:
        first, second, share = minimise(delta, gain, count)
        if rule.form == VARIANCE or known[first] + known[second] == 2.0:
            return arms[first], arms[second], share
        for b in (first, second):
            if known[b] == 0.0:
                known[b] = 1.0
                gain[b] = gaussian_information(rule, count, n, b, noise[arms[b]])


@implements(verbs.reset, Gaussian)
def _(part):
    for a in range(part.nu.size):
        part.nu[a] = part.first_nu[a]
    for i in range(3):
        part.mixture[i] = part.opening[i]


@implements(verbs.choose, Gaussian)
def _(rule, family, limits, rng, period, remaining):
    if remaining == 1:
        return verbs.best_mean(family, family.xi.size)  # information could not pay
    opening = True
    for a in range(family.xi.size):
        if family.nu[a] > rule.nu[a]:
            rule.nu[a] = family.nu[a]
            rule.mixture[0] = -1.0
        opening = opening and family.nu[a] == rule.first_nu[a]
    if rule.mixture[0] < 0.0:
        keep(rule, gaussian_mixture(rule, family.xi, family.nu, family.sd), opening)
    return drawn(rule.mixture, rng)
