"""Weighted points of latents that all arms share: one vector of weights, a table for each arm."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irsppl.engine import verbs
from irsppl.engine.families.memory import Work, blocks, likelihoods, lined_up, work_arrays
from irsppl.engine.families.points import along, take_in
from irsppl.engine.families.weights import (
    BLOCK,
    LEAST_SHARE,
    NOTHING,
    SUMS,
    add_draws,
    dot,
    draw_four,
    draw_point,
    excess,
    exponentiate,
    first_above,
    narrow,
    settle,
)
from irsppl.engine.verbs import INLINE, implements, one_by_one
from irsppl.inner.arrays import Floats, Ints, Singles
from irsppl.inner.cpu.compiling import njit


class JointPoints(NamedTuple):
    """N points, K arms, R reward atoms; what ends in 32 has each arm's points in its own order."""

    first: Floats  # [N] weights at the start
    values: Floats  # [K, R] the rewards
    mu: Floats  # [K, N]
    likelihood: Floats  # [K, R, N]
    logs: Singles  # [K, R, N] their logarithms
    law: Floats  # [K, N, R] cumulative, for sampling
    order: Ints  # [K, N] points by rising mean of the arm
    mu32: Singles  # [K, N]
    likelihood32: Singles  # [K, R, N]
    weights: Floats  # [N], now
    sums: Floats  # [N / BLOCK] running, of the weights
    means: Floats  # [K]
    reach: Ints  # [2] work array
    span: Ints  # [K, 2]
    plain32: Singles  # [K, R, N] likelihoods in the points' own order
    plain_mu32: Singles  # [K, N]
    fits: Singles  # [K, T, N]: how well so many rewards of the arm fit
    spare: Singles  # [3, N] work array
    # Each arm's future is given its own rewards only; the point is common to all.
    work: Work


def joint_points(
    weights: Any, likelihood: Any, values: Any, mu: Any, horizon: int, separable: bool
) -> JointPoints:
    """weights [N], likelihood [N, K, R], values [K, R], mu [N, K]; futures of T rewards."""
    weights = blocks(np.array(weights, np.float64), 0, "zero")
    mu = np.ascontiguousarray(blocks(np.asarray(mu, np.float64), 0, "last").T)
    law = blocks(np.asarray(likelihood, np.float64), 0, "last")
    scaled, logs, law = likelihoods(np.ascontiguousarray(np.moveaxis(law, 1, 0)))
    order = np.argsort(mu, axis=1, kind="stable")
    arms, size = mu.shape
    length = horizon if separable else 0
    fields = (
        weights,
        np.array(values, np.float64),
        mu,
        scaled,
        logs,
        law,
        order,
        np.take_along_axis(mu, order, axis=1).astype(np.float32),
        np.take_along_axis(scaled, order[:, None, :], axis=2).astype(np.float32),
        np.empty(size),
        np.empty(size // BLOCK),
        np.empty(arms),
        np.zeros(2, np.int64),
        np.zeros((arms, 2), np.int64),
        scaled.astype(np.float32),
        mu.astype(np.float32),
        np.empty((arms, length, size), np.float32),
        np.empty((3, size), np.float32),
    )
    work = work_arrays(arms, horizon, size, scaled.shape[1])
    return JointPoints._make([*map(lined_up, fields), work])


@njit(**INLINE)
def _settled(family: JointPoints, total: float) -> None:
    """Weights of that sum made to add to one, their sums and the arms' means."""
    settle(family.weights, family.sums, total, family.reach)
    for a in range(family.means.size):
        family.means[a] = dot(family.weights, family.mu[a])


@implements(verbs.reset, JointPoints)
def _(family):
    total = 0.0
    for j in range(family.weights.size):
        family.weights[j] = family.first[j]
        total += family.first[j]
    _settled(family, total)


@implements(verbs.observe, JointPoints)
def _(family, arm, reward):
    total, _ = take_in(family, arm, reward, family.weights, family.sums)
    _settled(family, total)


@implements(verbs.mean, JointPoints)
def _(family, arm):
    return family.means[arm]


@implements(verbs.highest, JointPoints)
def _(family, arm):
    return family.mu[arm, family.order[arm, family.weights.size - 1]]


@implements(verbs.gain, JointPoints)
def _(family, arm, lam):
    gain, above = 0.0, 0.0
    for j in range(family.weights.size):
        excess = family.mu[arm, j] - lam
        gain += family.weights[j] * excess if excess > 0.0 else 0.0
        above += family.weights[j] if excess > 0.0 else 0.0
    return gain, above


@implements(verbs.quantile, JointPoints)
def _(family, arm, level, z, floor, start):
    last, total = family.weights.size - 1, 0.0
    for j in range(last):
        total += family.weights[family.order[arm, j]]
        if total > level:
            return family.mu[arm, family.order[arm, j]]
    return family.mu[arm, family.order[arm, last]]


@implements(verbs.draw_means, JointPoints)
def _(family, rng, out):
    point = draw_point(rng, family.weights, family.sums)
    for a in range(out.size):
        out[a] = family.mu[a, point]


@njit(**SUMS)
def _times(x: Singles, y: Singles, scale: np.float32, out: Singles) -> None:
    """``out = x * y * scale``; ``out`` is neither of them, or it is not vectorised."""
    for j in range(x.size):
        w = x[j] * y[j] * scale
        out[j] = w if w > NOTHING else np.float32(0.0)


@implements(verbs.draw_future_means, JointPoints)
def _(family, rng, counts, out):
    point = draw_point(rng, family.weights, family.sums)
    scores = family.work.scores
    for j in range(scores.size):
        scores[j] = 0.0
    for a in range(out.size):
        if counts[a] > 0:
            law, logs = family.law[a, point], family.logs[a]
            add_draws(rng, law, counts[a], logs, point, family.work.tallies, scores, 0)
    exponentiate(scores, family.weights, family.spare[0])
    _means_under(family, family.spare[0], out)


@njit(**INLINE)
def _means_under(family: JointPoints, weights: Singles, out: NDArray) -> None:
    total = np.float32(0.0)
    for j in range(weights.size):
        total += weights[j]
    for a in range(out.size):
        out[a] = dot(weights, family.plain_mu32[a]) / total


# ------------------------------------------------------------------ one arm at a time: the index


@implements(verbs.renew, JointPoints)
def _(family, rng):
    point = draw_point(rng, family.weights, family.sums)
    for a in range(family.means.size):
        family.work.point[a] = point
        family.work.drawn[a] = 0
        total = 0.0
        for j in range(family.weights.size):
            w = family.weights[family.order[a, j]]
            family.work.path[a, 0, j] = w
            if family.order[a, j] == point:
                family.work.place[a] = j
            total += w
        low, high = narrow(family.work.path[a, 0], 0, family.weights.size, LEAST_SHARE * total)
        family.span[a, 0] = low
        family.span[a, 1] = high
        family.work.ends[a, 0, 0] = low
        family.work.ends[a, 0, 1] = high
        family.work.scale[a, 0] = 1.0 / total


@implements(verbs.bracket, JointPoints)
def _(family, horizon):
    lo, hi = np.inf, -np.inf
    for a in range(family.means.size):
        lo = min(lo, family.means[a])
        hi = max(hi, np.float64(family.mu32[a, family.span[a, 1] - 1]))
    return lo, hi


@implements(verbs.begin, JointPoints)
def _(family, arm, lam, node):
    low, high = family.span[arm, 0], family.span[arm, 1]
    cut = first_above(family.mu32[arm], lam, low, high)
    gain = excess(family.work.path[arm, 0, cut:high], family.mu32[arm, cut:high], np.float32(lam))
    return family.means[arm], gain * family.work.scale[arm, 0], cut


one_by_one(JointPoints)


@implements(verbs.follow, JointPoints)
def _(family, rng, arm, at, lam, cursor):
    return along(family, rng, arm, at, lam, cursor)


# ------------------------------------------------------------------ V-Zero-separable


@njit(**SUMS)
def _overlap(x: Singles, y: Singles, z: Singles, mu: Singles) -> tuple[np.float32, np.float32]:
    """The sum of x * y * z, and that with the means."""
    total, first = np.float32(0.0), np.float32(0.0)
    for j in range(x.size):
        w = x[j] * (y[j] * z[j])
        total += w
        first += w * mu[j]
    return total, first


@implements(verbs.draw_separable, JointPoints)
def _(family, rng, periods, cells, stride, start, least):
    point = draw_point(rng, family.weights, family.sums)
    arms, size = family.means.size, family.weights.size
    one, last = np.float32(1.0), periods - 1
    # fits[a, n]: how well the first n rewards of arm a fit each point, as ratios to the future's
    # own (see `Points`); the weights come in with arm 0.
    for a in range(arms):
        for j in range(size):
            family.fits[a, 0, j] = family.weights[j] if a == 0 else one
        drawn = draw_four(rng, family.law[a, point])
        for n in range(last):
            if n % 4 == 0 and n > 0:
                drawn = draw_four(rng, family.law[a, point])
            row = family.plain32[a, drawn[n % 4]]
            scale = one / max(row[point], NOTHING)
            _times(family.fits[a, n], row, scale, family.fits[a, n + 1])
        cells[a * stride + start] = 0.0
        least[a] = np.inf
    ones = family.spare[2]
    for j in range(size):
        ones[j] = one
    # Arm by arm within a period: what two of them read is still near.
    for n in range(periods):
        for a in range(arms):
            # The other arms after their first T - 1 - n rewards: all but two of them are multiplied
            # up first, in two spare rows in turn.
            fit, m = family.fits[a, n], last - n
            for i in range(arms - 3):
                _times(fit, family.fits[i + (1 if i >= a else 0), m], one, family.spare[i % 2])
                fit = family.spare[i % 2]
            other, another = family.fits[arms - (2 if a == arms - 1 else 1), m], ones
            if arms > 2:
                another = family.fits[arms - (3 if a >= arms - 2 else 2), m]
            total, first = _overlap(fit, other, another, family.plain_mu32[a])
            mean = first / total if total > 0.0 else family.means[a]
            least[a] = mean if mean < least[a] else least[a]
            at = a * stride + start + n
            cells[at + 1] = cells[at] + mean
