"""Information-directed sampling: from tables at nodes to regrets, information and a mixture.

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
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from irsppl.inner.arrays import Floats, Words
from irsppl.inner.cpu import rng as random
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.rng import KERNEL

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
FLOOR: Final = 1e-30
TINY: Final = 1e-290
# Lets the sums run in vector registers.
FAST: Final = {"contract", "reassoc", "nsz", "arcp"}


@njit(**KERNEL)
def _ratio(delta: float, gain: float) -> float:
    return delta * delta / max(gain, TINY)


@njit(**KERNEL)
def minimise(delta: Floats, gain: Floats, count: int) -> tuple[int, int, float]:
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


@njit(**KERNEL, fastmath=FAST)
def dot(u: Floats, v: Floats, n: int) -> float:
    total = 0.0
    for j in range(n):
        total += u[j] * v[j]
    return total


@njit(**KERNEL, fastmath=FAST)
def times(u: Floats, v: Floats, n: int, out: Floats) -> None:
    for j in range(n):
        out[j] = u[j] * v[j]


@njit(**KERNEL, fastmath=FAST)
def _product(count: int, weights: Floats, cdf: Floats, n: int, h: Floats) -> None:
    """``h`` [n]: weights times the product of the CDFs [K, n]."""
    for j in range(n):
        h[j] = weights[j]
    for a in range(count):
        row = cdf[a]
        for j in range(n):
            h[j] *= row[j]


@njit(**KERNEL)
def moments(
    count: int,
    n: int,
    x: Floats,
    weights: Floats,
    cdf: Floats,
    r: Floats,
    s: Floats,
    prob: Floats,
    cross: Floats,
    lines: Floats,
) -> int:
    """P(A* = b) [K] and E[mu_a; A* = b] [K (b), K (a)]; returns the arm that surely is best, or -1.

    ``x, weights`` [n], ``cdf, r, s`` [K, n].  Arms that are hardly ever best get probability 0.
    Leaves h in ``lines[0]``; ``lines[1]`` is scratch.
    """
    h, line = lines[0], lines[1]
    _product(count, weights, cdf, n, h)
    leader = 0
    for b in range(count):
        prob[b] = dot(h, r[b], n)
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
        times(h, r[b], n, line)
        for a in range(count):
            cross[b, a] = dot(line, x if a == b else s[a], n)
    return leader if rest < _SETTLED else -1


@njit(**KERNEL)
def score(form: int, count: int, prob: Floats, cross: Floats, delta: Floats, gain: Floats) -> None:
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
        information = 0.0
        for b in range(count):
            if prob[b] > 0.0:
                given = cross[b, a] / prob[b]
                if form == VARIANCE:
                    information += prob[b] * (given - mean) * (given - mean)
                else:
                    information += prob[b] * _divergence(min(max(given, 0.0), 1.0), mean)
        delta[a] = lost / total
        gain[a] = information / total


# ------------------------------------------------------------------ what the rules share


@njit(**KERNEL)
def keep(rule: Any, found: tuple[int, int, float], opening: bool) -> None:
    """Remember the mixture of the state now, and if it is the first one for every path."""
    rule.mixture[0], rule.mixture[1], rule.mixture[2] = found
    if opening:
        for i in range(3):
            rule.opening[i] = rule.mixture[i]


@njit(**KERNEL)
def drawn(mixture: Floats, rng: Words) -> int:
    """An arm of the mixture."""
    if mixture[0] == mixture[1] or random.uniform(rng) < mixture[2]:
        return np.int64(mixture[0])
    return np.int64(mixture[1])
