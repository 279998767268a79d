"""Weighted points: quadrature nodes, enumerated latents and particles that stay where they are.

With finitely many rewards, or bins of them in plans, a table of likelihoods, reward atom by point,
is all that a model has to say, and no density is evaluated within a decision: an update multiplies
weights by a row, a mean is a sum, and E[(mu - lam)+] a partial sum over points in order of their
means. Rewards of many values that are really seen are read off curves (`families.curves`).

The state itself is kept in double precision over all points. Plans work in single precision, on the
stretch of points between the first and the last whose weight is not negligible; the probability of
what they leave out is that of the weights left out, and stays so on average along any future.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irsppl.engine import verbs
from irsppl.engine.families.memory import Work, blocks, likelihoods, lined_up, work_arrays
from irsppl.engine.families.weights import (
    BLOCK,
    LEAST_SHARE,
    NOTHING,
    add_draws,
    atom_of,
    copied,
    dot,
    draw_atom,
    draw_four,
    draw_point,
    excess,
    find,
    first_above,
    four_steps,
    narrow,
    posterior_mean,
    read_curve,
    reweigh,
    reweigh_by_logs,
    settle,
    step,
)
from irsppl.engine.verbs import INLINE, implements, one_by_one
from irsppl.inner.arrays import Floats, Ints, Singles, Words
from irsppl.inner.cpu import rng as random
from irsppl.inner.cpu.compiling import njit


class Points(NamedTuple):
    """Independent arms with N points each, sorted by mean; R reward atoms."""

    first: Floats  # [K, N] weights at the start
    values: Floats  # [K, R] the rewards
    mu: Floats  # [K, N]
    likelihood: Floats  # [K, R, N]
    logs: Singles  # [K, R, N] their logarithms
    law: Floats  # [K, N, R] cumulative, for sampling
    mu32: Singles  # [K, N], and so on: what plans work with
    likelihood32: Singles
    weights: Floats  # [K, N], now
    sums: Floats  # [K, N / BLOCK] running, of the weights
    means: Floats  # [K]
    span: Ints  # [K, 2] first and last + 1 of the points that count
    # [1]: whether points stand for a density, so that draws and quantiles of means may be all that
    # lies between halfway to either neighbour. On the points alone Thompson sampling would explore
    # too little where they are few, and arms with the same points would tie.
    smooth: NDArray[np.bool_]
    work: Work


def points(
    weights: Any, likelihood: Any, values: Any, mu: Any, horizon: int, smooth: bool = False
) -> Points:
    """weights, mu [K, N], likelihood [K, N, R], values [K, R]; futures of T rewards.

    horizon: 0 where no rule asks for futures.
    """
    order = np.argsort(mu, axis=1, kind="stable")
    weights, mu = (np.take_along_axis(np.asarray(x, np.float64), order, 1) for x in (weights, mu))
    likelihood = np.take_along_axis(np.asarray(likelihood, np.float64), order[:, :, None], axis=1)
    weights, mu = blocks(weights, 1, "zero"), blocks(mu, 1, "last")
    scaled, logs, law = likelihoods(blocks(likelihood, 1, "last"))
    arms, size = mu.shape
    fields = (
        weights,
        np.array(values, np.float64),
        mu,
        scaled,
        logs,
        law,
        mu.astype(np.float32),
        scaled.astype(np.float32),
        np.empty((arms, size)),
        np.empty((arms, size // BLOCK)),
        np.empty(arms),
        np.zeros((arms, 2), np.int64),
        np.full(1, smooth),
    )
    work = work_arrays(arms, horizon, size, scaled.shape[1])
    return Points._make([*map(lined_up, fields), work])


@implements(verbs.reset, Points)
def _(family):
    for a in range(family.means.size):
        total = 0.0
        for j in range(family.first.shape[1]):
            family.weights[a, j] = family.first[a, j]
            total += family.first[a, j]
        family.means[a] = dot(family.first[a], family.mu[a]) / total
        settle(family.weights[a], family.sums[a], total, family.span[a])


@njit(**INLINE)
def take_in(
    family: Any, arm: int, reward: float, weights: NDArray, sums: NDArray
) -> tuple[float, float]:
    """A reward of the arm, into its weights; their sum and their sum with the means."""
    work, mu = family.work, family.mu[arm]
    if work.curves.shape[1] > 0:
        read_curve(work.curves[arm], work.exact, reward, work.scores)
        own = work.scores[find(weights, sums, 0.5)]
        return reweigh_by_logs(weights, work.scores, own, mu)
    return reweigh(weights, family.likelihood[arm, atom_of(family.values, arm, reward)], mu)


@implements(verbs.observe, Points)
def _(family, arm, reward):
    weights, sums = family.weights[arm], family.sums[arm]
    total, first = take_in(family, arm, reward, weights, sums)
    settle(weights, sums, total, family.span[arm])
    family.means[arm] = first / total


@implements(verbs.mean, Points)
def _(family, arm):
    return family.means[arm]


@implements(verbs.highest, Points)
def _(family, arm):
    return family.mu[arm, family.mu.shape[1] - 1]


@implements(verbs.gain, Points)
def _(family, arm, lam):
    gain, above = 0.0, 0.0
    for j in range(family.mu.shape[1] - 1, -1, -1):
        excess = family.mu[arm, j] - lam
        if excess <= 0.0:
            break
        gain += family.weights[arm, j] * excess
        above += family.weights[arm, j]
    return gain, above


@implements(verbs.quantile, Points)
def _(family, arm, level, z, floor, start):
    weights, sums = family.weights[arm], family.sums[arm]
    point = find(weights, sums, level)
    if not family.smooth[0]:
        return family.mu[arm, point]
    block = point // BLOCK
    below = sums[block - 1] if block > 0 else 0.0
    for j in range(block * BLOCK, point):
        below += weights[j]
    return _between(family.mu[arm], point, min(max((level - below) / weights[point], 0.0), 1.0))


@njit(**INLINE)
def _between(mu: Floats, point: int, share: float) -> float:
    """So far along what lies between halfway to either neighbour of a point."""
    u = share - 0.5
    near = max(point - 1, 0) if u < 0.0 else min(point + 1, mu.size - 1)
    return mu[point] + abs(u) * (mu[near] - mu[point])


@implements(verbs.draw_means, Points)
def _(family, rng, out):
    for a in range(out.size):
        mu = family.mu[a]
        j = draw_point(rng, family.weights[a], family.sums[a])
        out[a] = mu[j]
        if family.smooth[0]:
            out[a] = _between(mu, j, random.uniform(rng))


@njit(**INLINE)
def _choose_point(family: Points, rng: Words, arm: int) -> int:
    """A point by its weight, among those that plans work with."""
    point = draw_point(rng, family.weights[arm], family.sums[arm])
    return min(max(point, family.span[arm, 0]), family.span[arm, 1] - 1)


@njit(**INLINE)
def _open(family: Points, rng: Words, arm: int) -> None:
    """The start of the arm's future: its point, and the weights as they are."""
    low, high = family.span[arm, 0], family.span[arm, 1]
    family.work.point[arm] = family.work.place[arm] = _choose_point(family, rng, arm)
    total = copied(family.weights[arm, low:high], family.work.path[arm, 0, low:high])
    family.work.scale[arm, 0] = 1.0 / total
    family.work.trail[arm, 0] = family.means[arm]
    family.work.ends[arm, 0, 0] = low
    family.work.ends[arm, 0, 1] = high
    family.work.drawn[arm] = 0


@njit(**INLINE)
def _extend(family: Any, rng: Words, arm: int, before: int, after: int) -> float:
    """One reward more of the arm's future, from row ``before`` of its path to row ``after``."""
    low, high = family.work.ends[arm, before, 0], family.work.ends[arm, before, 1]
    atom = draw_atom(rng, family.law[arm, family.work.point[arm]])
    row = family.work.path[arm, after]
    total, first = step(
        family.work.path[arm, before, low:high],
        family.likelihood32[arm, atom, low:high],
        np.float32(1.0 / _own(family, arm, atom)),
        family.mu32[arm, low:high],
        row[low:high],
    )
    family.work.scale[arm, after] = 1.0 / total
    _narrow(family, arm, after, low, high, total)
    return first / total


@njit(**INLINE)
def _own(family: Any, arm: int, atom: int) -> float:
    """The likelihood at the future's own point, which others are divided by.

    Products of such ratios have expectation one, whatever the other point is: they stay in range
    (above x with probability at most 1 / x), and no step waits for the sum of the one before.
    """
    own = family.likelihood32[arm, atom, family.work.place[arm]]
    return max(np.float64(own), np.float64(NOTHING))


@njit(**INLINE)
def _narrow(family: Any, arm: int, after: int, low: int, high: int, total: float) -> None:
    """Weights narrow as rewards come in; looking at the two ends each time keeps up with them."""
    low, high = narrow(family.work.path[arm, after], low, high, LEAST_SHARE * total)
    family.work.ends[arm, after, 0] = low
    family.work.ends[arm, after, 1] = high


@njit(**INLINE)
def _extend_by_four(
    family: Any, rng: Words, arm: int, before: int, after: int
) -> tuple[float, float, float, float]:
    """Four rewards more: the mean after each, in one pass over the points."""
    low, high = family.work.ends[arm, before, 0], family.work.ends[arm, before, 1]
    law, likelihood = family.law[arm, family.work.point[arm]], family.likelihood32[arm]
    a, b, c, d = draw_four(rng, law)
    scale = (_own(family, arm, a) * _own(family, arm, b)) * (
        _own(family, arm, c) * _own(family, arm, d)
    )
    t0, m0, t1, m1, t2, m2, t3, m3 = four_steps(
        family.work.path[arm, before, low:high],
        likelihood[a, low:high],
        likelihood[b, low:high],
        likelihood[c, low:high],
        likelihood[d, low:high],
        np.float32(1.0 / scale),
        family.mu32[arm, low:high],
        family.work.path[arm, after, low:high],
    )
    _narrow(family, arm, after, low, high, t3)
    return m0 / t0, m1 / t1, m2 / t2, m3 / t3


@njit(**INLINE)
def _mean_after(
    family: Any, rng: Words, arm: int, point: int, n: int, weights: NDArray, ends: Any
) -> float:
    """The mean after n more rewards of that point, whatever their order."""
    low, high = ends[0], ends[1]
    scores, law = family.work.scores[low:high], family.law[arm, point]
    for j in range(scores.size):
        scores[j] = 0.0
    add_draws(rng, law, n, family.logs[arm], point, family.work.tallies, scores, low)
    return posterior_mean(weights, scores, family.mu[arm, low:high])


@implements(verbs.draw_future_means, Points)
def _(family, rng, counts, out):
    for a in range(out.size):
        if counts[a] <= 0:
            out[a] = family.means[a]
            continue
        low, high = family.span[a, 0], family.span[a, 1]
        point, weights = _choose_point(family, rng, a), family.weights[a, low:high]
        out[a] = _mean_after(family, rng, a, point, counts[a], weights, family.span[a])


@implements(verbs.draw_path, Points)
def _(family, rng, arm, length, out, start, cumulative):
    mean = family.means[arm]
    least = mean
    summed = mean
    out[start] = mean
    if length <= 1:
        return least
    _open(family, rng, arm)
    at = 0  # two rows of the path in turn: it is not needed again
    n = 1
    while n + 4 <= length:
        means = _extend_by_four(family, rng, arm, at, 1 - at)
        for mean in means:
            least = mean if mean < least else least
            summed += mean
            out[start + n] = summed if cumulative else mean
            n += 1
        at = 1 - at
    while n < length:
        mean = _extend(family, rng, arm, at, 1 - at)
        least = mean if mean < least else least
        summed += mean
        out[start + n] = summed if cumulative else mean
        n += 1
        at = 1 - at
    return least


@implements(verbs.draw_prefix, Points)
def _(family, rng, arm, skip, width, total, row):
    _open(family, rng, arm)
    mean = family.means[arm]
    length, rest, at = skip + width, total - width, 0
    for n in range(length):
        if n > 0:
            at = n % 2
            mean = _extend(family, rng, arm, 1 - at, at)
        if n >= skip:
            row[1 + n - skip] = mean
    if rest <= 0:
        return mean
    ends = family.work.ends[arm, at]
    weights = family.work.path[arm, at, ends[0] : ends[1]]
    return _mean_after(family, rng, arm, family.work.point[arm], rest, weights, ends)


@implements(verbs.renew, Points)
def _(family, rng):
    for a in range(family.work.drawn.size):
        family.work.drawn[a] = -1


@implements(verbs.bracket, Points)
def _(family, horizon):
    # From the lowest mean: phi need not be monotone near the highest.
    lo, hi = np.inf, -np.inf
    for a in range(family.means.size):
        lo = min(lo, family.means[a])
        hi = max(hi, family.mu[a, family.span[a, 1] - 1])
    return lo, hi


@implements(verbs.begin, Points)
def _(family, arm, lam, node):
    low, high = family.span[arm, 0], family.span[arm, 1]
    cut = first_above(family.mu32[arm], lam, low, high)
    gain = 0.0
    for j in range(cut, high):
        gain += family.weights[arm, j] * (family.mu[arm, j] - lam)
    return family.means[arm], gain, cut


one_by_one(Points)


@implements(verbs.follow, Points)
def _(family, rng, arm, at, lam, cursor):
    if family.work.drawn[arm] < 0:
        _open(family, rng, arm)
    return along(family, rng, arm, at, lam, cursor)


@njit(**INLINE)
def along(
    family: Any, rng: Words, arm: int, at: int, lam: float, cursor: tuple[float, float, int]
) -> tuple[float, float, int]:
    """`follow`, for any points whose futures have been opened."""
    cut = cursor[2]
    if family.work.drawn[arm] <= at:
        family.work.trail[arm, at + 1] = _extend(family, rng, arm, at, at + 1)
        family.work.drawn[arm] = at + 1
    start, high = family.work.ends[arm, at + 1, 0], family.work.ends[arm, at + 1, 1]
    start = min(max(start, cut), high)
    gain = excess(
        family.work.path[arm, at + 1, start:high], family.mu32[arm, start:high], np.float32(lam)
    )
    return family.work.trail[arm, at + 1], gain * family.work.scale[arm, at + 1], cut
