"""Weighted points: quadrature nodes, enumerated latents and particles, where rewards are few.

With finitely many rewards a table of likelihoods, reward atom by point, is all that a model has to
say, and no density is evaluated within a decision: an update multiplies weights by a row, a mean is
a sum, and E[(mu - lam)+] a partial sum over points in order of their means.

The state itself is kept in double precision over all points. Plans work in single precision, on the
stretch of points between the first and the last whose weight is not negligible; the probability of
what they leave out is that of the weights left out, and stays so on average along any future.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irsppl.engine import verbs
from irsppl.engine.families.weights import (
    LEAST_SHARE,
    RESCALE,
    add_counts,
    atom_of,
    blocks,
    dot,
    draw_atom,
    draw_point,
    excess,
    find,
    first_above,
    narrow,
    posterior_mean,
    reweigh,
    scaled_step,
    settle,
    step,
    tally,
)
from irsppl.engine.verbs import INLINE, implements, one_by_one
from irsppl.inner.cpu.compiling import njit


class Points(NamedTuple):
    """Independent arms with N points each, sorted by mean; R reward atoms."""

    first: NDArray[np.float64]  # [K, N] weights at the start
    values: NDArray[np.float64]  # [K, R] the rewards
    mu: NDArray[np.float64]  # [K, N]
    likelihood: NDArray[np.float64]  # [K, R, N]
    logs: NDArray[np.float64]  # [K, R, N] their logarithms; R = 0 where rewards are many
    law: NDArray[np.float64]  # [K, N, R] cumulative, for sampling
    mu32: NDArray[np.float32]  # [K, N], and so on: what plans work with
    likelihood32: NDArray[np.float32]
    weights: NDArray[np.float64]  # [K, N], now
    sums: NDArray[np.float64]  # [K, N] of the weights
    means: NDArray[np.float64]  # [K]
    span: NDArray[np.int64]  # [K, 2] first and last + 1 of the points that count
    tallies: NDArray[np.int64]  # [R] work array
    scores: NDArray[np.float64]  # [N] work array
    # Each arm's future: point, rewards drawn, weights after each of them, 1 / their sum, means.
    point: NDArray[np.int64]  # [K]
    drawn: NDArray[np.int64]  # [K]
    path: NDArray[np.float32]  # [K, T + 1, N]
    scale: NDArray[np.float64]  # [K, T + 1]
    trail: NDArray[np.float64]  # [K, T + 1]
    ends: NDArray[np.int64]  # [K, T + 1, 2]: the stretch that counts, which narrows


def points(weights: Any, likelihood: Any, values: Any, mu: Any, horizon: int) -> Points:
    """weights, mu [K, N], likelihood [K, N, R], values [K, R]; futures of T rewards.

    horizon: 0 where no rule asks for futures.
    """
    order = np.argsort(mu, axis=1, kind="stable")
    weights, mu = (np.take_along_axis(np.asarray(x, np.float64), order, 1) for x in (weights, mu))
    likelihood = np.take_along_axis(np.asarray(likelihood, np.float64), order[:, :, None], axis=1)
    weights, mu = blocks(weights, 1, "zero"), blocks(mu, 1, "last")
    likelihood = blocks(likelihood, 1, "last")
    by_atom = np.ascontiguousarray(np.moveaxis(likelihood, 1, 2))
    # Only ratios between points matter: the largest of a row is 1, which keeps weights in range.
    top = by_atom.max(axis=2, keepdims=True)
    scaled = by_atom / np.where(top > 0, top, 1.0)
    with np.errstate(divide="ignore"):
        logs = np.log(scaled)
    arms, size = mu.shape
    atoms = by_atom.shape[1]
    return Points(
        weights,
        np.array(values, np.float64),
        mu,
        scaled,
        logs,
        np.cumsum(likelihood, axis=2),
        mu.astype(np.float32),
        scaled.astype(np.float32),
        np.empty((arms, size)),
        np.empty((arms, size)),
        np.empty(arms),
        np.zeros((arms, 2), np.int64),
        np.empty(atoms, np.int64),
        np.empty(size),
        np.zeros(arms, np.int64),
        np.zeros(arms, np.int64),
        np.empty((arms, horizon + 1, size), np.float32),
        np.empty((arms, horizon + 1)),
        np.empty((arms, horizon + 1)),
        np.zeros((arms, horizon + 1, 2), np.int64),
    )


@implements(verbs.reset, Points)
def _(family):
    for a in range(family.means.size):
        total = 0.0
        for j in range(family.first.shape[1]):
            family.weights[a, j] = family.first[a, j]
            total += family.first[a, j]
        family.means[a] = dot(family.first[a], family.mu[a]) / total
        settle(family.weights[a], family.sums[a], total, family.span[a])


@implements(verbs.observe, Points)
def _(family, arm, reward):
    atom = atom_of(family.values, arm, reward)
    total, first = reweigh(family.weights[arm], family.likelihood[arm, atom], family.mu[arm])
    settle(family.weights[arm], family.sums[arm], total, family.span[arm])
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
    return family.mu[arm, find(family.sums[arm], level)]


@implements(verbs.draw_means, Points)
def _(family, rng, out):
    for a in range(out.size):
        out[a] = family.mu[a, draw_point(rng, family.sums[a])]


@njit(**INLINE)
def _open(family: Points, rng: NDArray[np.uint64], arm: int) -> None:
    """The start of the arm's future: its point, and the weights as they are."""
    low, high = family.span[arm, 0], family.span[arm, 1]
    family.point[arm] = draw_point(rng, family.sums[arm])
    total = 0.0
    for j in range(low, high):
        family.path[arm, 0, j] = family.weights[arm, j]
        total += family.weights[arm, j]
    family.scale[arm, 0] = 1.0 / total
    family.trail[arm, 0] = family.means[arm]
    family.ends[arm, 0, 0] = low
    family.ends[arm, 0, 1] = high
    family.drawn[arm] = 0


@njit(**INLINE)
def _extend(family: Any, rng: NDArray[np.uint64], arm: int, before: int, after: int) -> float:
    """One reward more of the arm's future, from row ``before`` of its path to row ``after``."""
    low, high = family.ends[arm, before, 0], family.ends[arm, before, 1]
    atom = draw_atom(rng, family.law[arm, family.point[arm]])
    row = family.path[arm, after]
    old, new = family.path[arm, before, low:high], row[low:high]
    likelihood, mu = family.likelihood32[arm, atom, low:high], family.mu32[arm, low:high]
    # Scaled when it must be, not each time: a step that waits for the sum of the one before takes
    # three times as long. A branch on it is foreseen by the processor.
    if family.scale[arm, before] > RESCALE:
        total, first = scaled_step(old, likelihood, mu, np.float32(family.scale[arm, before]), new)
    else:
        total, first = step(old, likelihood, mu, new)
    family.scale[arm, after] = 1.0 / total
    # Weights narrow as rewards come in; looking at the two ends each time keeps up with them.
    low, high = narrow(row, low, high, LEAST_SHARE * total)
    family.ends[arm, after, 0] = low
    family.ends[arm, after, 1] = high
    return first / total


@implements(verbs.draw_future_means, Points)
def _(family, rng, counts, out):
    for a in range(out.size):
        if counts[a] <= 0:
            out[a] = family.means[a]
            continue
        if family.logs.shape[1] == 0:  # more rewards than futures are long: one by one
            _open(family, rng, a)
            for n in range(counts[a]):
                out[a] = _extend(family, rng, a, n % 2, (n + 1) % 2)
            continue
        chosen = draw_point(rng, family.sums[a])
        tally(rng, family.law[a, chosen], counts[a], family.tallies)
        low, high = family.span[a, 0], family.span[a, 1]
        scores = family.scores[low:high]
        for j in range(scores.size):
            scores[j] = 0.0
        add_counts(scores, family.logs[a, :, low:high], family.tallies)
        out[a] = posterior_mean(family.weights[a, low:high], scores, family.mu[a, low:high])


@implements(verbs.draw_path, Points)
def _(family, rng, arm, length, out, start, cumulative):
    mean = family.means[arm]
    least = mean
    summed = mean
    out[start] = mean
    if length <= 1:
        return least
    _open(family, rng, arm)
    for n in range(1, length):
        # Two rows in turn: the path itself is not needed again.
        mean = _extend(family, rng, arm, (n - 1) % 2, n % 2)
        least = mean if mean < least else least
        summed += mean
        out[start + n] = summed if cumulative else mean
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
    if family.logs.shape[1] == 0:  # as in `draw_future_means`
        for n in range(length, length + rest):
            at = n % 2
            mean = _extend(family, rng, arm, 1 - at, at)
        return mean
    low, high = family.ends[arm, at, 0], family.ends[arm, at, 1]
    tally(rng, family.law[arm, family.point[arm]], rest, family.tallies)
    scores = family.scores[low:high]
    for j in range(scores.size):
        scores[j] = 0.0
    add_counts(scores, family.logs[arm, :, low:high], family.tallies)
    return posterior_mean(family.path[arm, at, low:high], scores, family.mu[arm, low:high])


@implements(verbs.renew, Points)
def _(family, rng):
    for a in range(family.drawn.size):
        family.drawn[a] = -1


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
    if family.drawn[arm] < 0:
        _open(family, rng, arm)
    return along(family, rng, arm, at, lam, cursor)


@njit(**INLINE)
def along(
    family: Any,
    rng: NDArray[np.uint64],
    arm: int,
    at: int,
    lam: float,
    cursor: tuple[float, float, int],
) -> tuple[float, float, int]:
    """`follow`, for any points whose futures have been opened."""
    cut = cursor[2]
    if family.drawn[arm] <= at:
        family.trail[arm, at + 1] = _extend(family, rng, arm, at, at + 1)
        family.drawn[arm] = at + 1
    start, high = family.ends[arm, at + 1, 0], family.ends[arm, at + 1, 1]
    start = min(max(start, cut), high)
    gain = excess(
        family.path[arm, at + 1, start:high], family.mu32[arm, start:high], np.float32(lam)
    )
    return family.trail[arm, at + 1], gain * family.scale[arm, at + 1], cut
