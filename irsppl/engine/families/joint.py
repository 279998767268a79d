"""Weighted points of latents that all arms share: one vector of weights, a table for each arm."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irsppl.engine import verbs
from irsppl.engine.families.points import along
from irsppl.engine.families.weights import (
    BLOCK,
    FAR,
    NEGLIGIBLE,
    NOTHING,
    SUMS,
    add_counts,
    atom_of,
    blocks,
    dot,
    draw_atom,
    draw_point,
    excess,
    first_above,
    settle,
    tally,
)
from irsppl.engine.verbs import INLINE, implements, one_by_one
from irsppl.inner.cpu.compiling import njit


class JointPoints(NamedTuple):
    """N points, K arms, R reward atoms; what ends in 32 has each arm's points in its own order."""

    first: NDArray[np.float64]  # [N] weights at the start
    values: NDArray[np.float64]  # [K, R] the rewards
    mu: NDArray[np.float64]  # [K, N]
    likelihood: NDArray[np.float64]  # [K, R, N]
    logs: NDArray[np.float64]  # [K, R, N] their logarithms; R = 0 where rewards are many
    law: NDArray[np.float64]  # [K, N, R] cumulative, for sampling
    order: NDArray[np.int64]  # [K, N] points by rising mean of the arm
    mu32: NDArray[np.float32]  # [K, N]
    likelihood32: NDArray[np.float32]  # [K, R, N]
    weights: NDArray[np.float64]  # [N], now
    sums: NDArray[np.float64]  # [N] of the weights
    means: NDArray[np.float64]  # [K]
    reach: NDArray[np.int64]  # [2] work array
    tallies: NDArray[np.int64]  # [R] work array
    scores: NDArray[np.float64]  # [N] work array
    # Each arm's future given its own rewards only, as in `Points`; the point is common to all.
    span: NDArray[np.int64]  # [K, 2]
    point: NDArray[np.int64]  # [K]
    drawn: NDArray[np.int64]  # [K]
    path: NDArray[np.float32]  # [K, T + 1, N]
    scale: NDArray[np.float64]  # [K, T + 1]
    trail: NDArray[np.float64]  # [K, T + 1]
    ends: NDArray[np.int64]  # [K, T + 1, 2]
    plain32: NDArray[np.float32]  # [K, R, N] likelihoods in the points' own order
    plain_mu32: NDArray[np.float32]  # [K, N]
    rest: NDArray[np.float32]  # [K, T, N]: given so many rewards of every *other* arm
    atoms: NDArray[np.int64]  # [K, T]
    spare: NDArray[np.float32]  # [2, N] work array


def joint_points(
    weights: Any, likelihood: Any, values: Any, mu: Any, horizon: int, separable: bool
) -> JointPoints:
    """weights [N], likelihood [N, K, R], values [K, R], mu [N, K]; futures of T rewards."""
    weights = blocks(np.array(weights, np.float64), 0, "zero")
    mu = np.ascontiguousarray(blocks(np.asarray(mu, np.float64), 0, "last").T)
    law = blocks(np.asarray(likelihood, np.float64), 0, "last")
    law = np.ascontiguousarray(np.moveaxis(law, 1, 0))
    by_atom = np.ascontiguousarray(np.moveaxis(law, 1, 2))
    top = by_atom.max(axis=2, keepdims=True)
    scaled = by_atom / np.where(top > 0, top, 1.0)
    with np.errstate(divide="ignore"):
        logs = np.log(scaled)
    order = np.argsort(mu, axis=1, kind="stable")
    arms, size = mu.shape
    atoms = by_atom.shape[1]
    length = horizon if separable else 0
    return JointPoints(
        weights,
        np.array(values, np.float64),
        mu,
        scaled,
        logs,
        np.cumsum(law, axis=2),
        order,
        np.take_along_axis(mu, order, axis=1).astype(np.float32),
        np.take_along_axis(scaled, order[:, None, :], axis=2).astype(np.float32),
        np.empty(size),
        np.empty(size),
        np.empty(arms),
        np.zeros(2, np.int64),
        np.empty(atoms, np.int64),
        np.empty(size),
        np.zeros((arms, 2), np.int64),
        np.zeros(arms, np.int64),
        np.zeros(arms, np.int64),
        np.empty((arms, horizon + 1, size), np.float32),
        np.empty((arms, horizon + 1)),
        np.empty((arms, horizon + 1)),
        np.zeros((arms, horizon + 1, 2), np.int64),
        scaled.astype(np.float32),
        mu.astype(np.float32),
        np.empty((arms, length, size), np.float32),
        np.empty((arms, length), np.int64),
        np.empty((2, size), np.float32),
    )


@njit(**INLINE)
def _refresh(family: JointPoints) -> None:
    """Weights that add to one, their sums and the arms' means."""
    total = 0.0
    for j in range(family.weights.size):
        total += family.weights[j]
    settle(family.weights, family.sums, total, family.reach)
    for a in range(family.means.size):
        family.means[a] = dot(family.weights, family.mu[a])


@implements(verbs.reset, JointPoints)
def _(family):
    for j in range(family.weights.size):
        family.weights[j] = family.first[j]
    _refresh(family)


@implements(verbs.observe, JointPoints)
def _(family, arm, reward):
    row = family.likelihood[arm, atom_of(family.values, arm, reward)]
    for j in range(family.weights.size):
        family.weights[j] *= row[j]
    _refresh(family)


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
    point = draw_point(rng, family.sums)
    for a in range(out.size):
        out[a] = family.mu[a, point]


@njit(**SUMS)
def _times(
    x: NDArray[np.float32], y: NDArray[np.float32], scale: np.float32, out: NDArray[np.float32]
) -> np.float32:
    """``out = x * y * scale`` and its sum; ``out`` is neither of them, or it is not vectorised."""
    total = np.float32(0.0)
    for j in range(x.size):
        w = x[j] * y[j] * scale
        w = w if w > NOTHING else np.float32(0.0)
        out[j] = w
        total += w
    return total


@implements(verbs.draw_future_means, JointPoints)
def _(family, rng, counts, out):
    point = draw_point(rng, family.sums)
    if family.logs.shape[1] == 0:  # more rewards than futures are long: one by one
        for j in range(family.weights.size):
            family.spare[0, j] = family.weights[j]
        now = 0
        scale = np.float32(1.0)
        for a in range(out.size):
            for _ in range(counts[a]):
                row = family.plain32[a, draw_atom(rng, family.law[a, point])]
                fit = _times(family.spare[now], row, scale, family.spare[1 - now])
                scale = np.float32(1.0) / fit
                now = 1 - now
        whole = np.float32(0.0)
        for j in range(family.weights.size):
            whole += family.spare[now, j]
        for a in range(out.size):
            out[a] = dot(family.spare[now], family.plain_mu32[a]) / whole
        return
    scores = family.scores
    for j in range(scores.size):
        scores[j] = 0.0
    for a in range(out.size):
        if counts[a] > 0:
            tally(rng, family.law[a, point], counts[a], family.tallies)
            add_counts(scores, family.logs[a], family.tallies)
    top = -np.inf
    for j in range(scores.size):
        if scores[j] > top and family.weights[j] > 0.0:
            top = scores[j]
    total = 0.0
    for j in range(scores.size):
        gap = scores[j] - top
        scores[j] = family.weights[j] * np.exp(gap) if gap > FAR else 0.0
        total += scores[j]
    for a in range(out.size):
        out[a] = dot(scores, family.mu[a]) / total


# ------------------------------------------------------------------ one arm at a time: the index


@implements(verbs.renew, JointPoints)
def _(family, rng):
    point = draw_point(rng, family.sums)
    for a in range(family.means.size):
        family.point[a] = point
        family.drawn[a] = 0
        top, total = 0.0, 0.0
        for j in range(family.weights.size):
            w = family.weights[family.order[a, j]]
            family.path[a, 0, j] = w
            total += w
            top = w if w > top else top
        low, high = 0, family.weights.size
        while family.path[a, 0, low] < NEGLIGIBLE * top:
            low += 1
        while family.path[a, 0, high - 1] < NEGLIGIBLE * top:
            high -= 1
        low -= low % BLOCK
        high += -high % BLOCK
        family.span[a, 0] = low
        family.span[a, 1] = high
        family.ends[a, 0, 0] = low
        family.ends[a, 0, 1] = high
        family.scale[a, 0] = 1.0 / total


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
    gain = excess(family.path[arm, 0, cut:high], family.mu32[arm, cut:high], np.float32(lam))
    return family.means[arm], gain * family.scale[arm, 0], cut


one_by_one(JointPoints)


@implements(verbs.follow, JointPoints)
def _(family, rng, arm, at, lam, cursor):
    return along(family, rng, arm, at, lam, cursor)


# ------------------------------------------------------------------ V-Zero-separable


@njit(**SUMS)
def _overlap(
    x: NDArray[np.float32], y: NDArray[np.float32], mu: NDArray[np.float32]
) -> tuple[np.float32, np.float32]:
    total, first = np.float32(0.0), np.float32(0.0)
    for j in range(x.size):
        w = x[j] * y[j]
        total += w
        first += w * mu[j]
    return total, first


@implements(verbs.draw_separable, JointPoints)
def _(family, rng, periods, cells, stride, start, least):
    point = draw_point(rng, family.sums)
    arms, size = family.means.size, family.weights.size
    for a in range(arms):
        for n in range(periods - 1):
            family.atoms[a, n] = draw_atom(rng, family.law[a, point])
    # rest[a, m]: given the first m rewards of every arm but a. Two spare rows in turn hold what is
    # not yet complete.
    last = periods - 1
    for a in range(arms):
        for j in range(size):
            family.rest[a, 0, j] = family.weights[j]
        scale = np.float32(1.0)
        for m in range(1, periods):
            done = 0
            total = np.float32(1.0)
            for b in range(arms):
                if b == a:
                    continue
                row = family.plain32[b, family.atoms[b, m - 1]]
                if done == 0 and done == arms - 2:
                    total = _times(family.rest[a, m - 1], row, scale, family.rest[a, m])
                elif done == 0:
                    total = _times(family.rest[a, m - 1], row, scale, family.spare[0])
                elif done == arms - 2:
                    before = family.spare[(done - 1) % 2]
                    total = _times(before, row, np.float32(1.0), family.rest[a, m])
                else:
                    before = family.spare[(done - 1) % 2]
                    total = _times(before, row, np.float32(1.0), family.spare[done % 2])
                done += 1
            scale = np.float32(1.0) / total
    for a in range(arms):
        begin = a * stride + start
        cells[begin] = 0.0
        summed = 0.0
        lowest = np.inf
        mu = family.plain_mu32[a]
        # How well the arm's first n rewards fit each point, in two rows in turn.
        for j in range(size):
            family.spare[0, j] = 1.0
        scale = np.float32(1.0)
        for n in range(periods):
            if n > 0:
                row = family.plain32[a, family.atoms[a, n - 1]]
                fit = _times(family.spare[(n - 1) % 2], row, scale, family.spare[n % 2])
                scale = np.float32(size) / fit
            total, first = _overlap(family.rest[a, last - n], family.spare[n % 2], mu)
            mean = first / total if total > 0.0 else family.means[a]
            lowest = mean if mean < lowest else lowest
            summed += mean
            cells[begin + n + 1] = summed
        least[a] = lowest
