"""Clouds of many replications that are played side by side, each with weights of its own.

A cloud's points stay those of the start until it is moved; from then on its replication has points
and tables of its own. Rules see one replication at a time, as plain `Points` or `JointPoints`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irsppl.engine import verbs
from irsppl.engine.families.joint import JointPoints
from irsppl.engine.families.memory import Work, room, work_arrays
from irsppl.engine.families.points import Points
from irsppl.engine.families.weights import BLOCK, LEAST_LOG, SUMS, dot, largest, log32, settle
from irsppl.engine.verbs import INLINE, implements, verb
from irsppl.inner.arrays import Floats, Ints, Singles
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.rng import KERNEL

# Points whose running sums are taken at a time.
_STRIP: Final = 8


class Tables(NamedTuple):
    """Points and the probabilities of R rewards at each."""

    mu: Floats  # [K, M]; separate arms: rising
    mass: NDArray[np.floating]  # [K, R, M]
    values: Floats  # [K, R] the rewards, or [K, 0] where atoms serve plans only


class SeparateClouds(NamedTuple):
    """S replications of K independent arms with N points each. Row 0 of what has S + 1 rows is the
    start's, row s + 1 that of replication s once it has moved."""

    slot: Ints  # [S]: which row is the replication's
    values: Floats  # [K, R]
    mu: Floats  # [S + 1, K, N]
    mu32: Singles
    likelihood: Singles  # [S + 1, K, R, N]
    logs: Singles  # [S + 1, K, R, N] of the likelihood
    law: Singles  # [S + 1, K, N, R]
    weights: Floats  # [S, K, N]
    sums: Floats  # [S, K, N / BLOCK]
    means: Floats  # [S, K]
    new: Floats  # [S, N] with the newest reward, where that calls for a move
    work: Work
    span: Ints  # [S, K, 2]
    smooth: NDArray[np.bool_]  # as in `Points`


class JointClouds(NamedTuple):
    """S replications of N points of latents that all arms share; rows as in `SeparateClouds`."""

    slot: Ints  # [S]
    values: Floats  # [K, R]
    mu: Floats  # [S + 1, K, N]
    mu32: Singles  # in the arm's own order
    likelihood: Singles  # [S + 1, K, R, N] in the points' order
    logs: Singles  # [S + 1, K, R, N]
    law: Singles  # [S + 1, K, N, R]
    weights: Floats  # [S, 1, N]
    sums: Floats  # [S, 1, N / BLOCK]
    means: Floats  # [S, K]
    new: Floats  # [S, N] with the newest reward, where that calls for a move
    work: Work
    span: Ints  # [K, 2], as in `JointPoints`
    order: Ints  # [S + 1, K, N]
    ordered: Singles  # [S + 1, K, R, N] likelihoods in the arm's own order
    plain_mu: Singles  # [S + 1, K, N]
    reach: Ints  # this and all below as in `JointPoints`
    fits: Singles
    spare: Singles


def make_clouds(
    start: Tables,
    count: int,
    horizon: int,
    moving: bool,
    smooth: bool,
    joint: bool,
    separable: bool,
) -> SeparateClouds | JointClouds:
    """Room for `count` replications; futures of so many rewards; moving: points may change.

    joint: arms share their latents; separable: the rule is V-Zero-separable.
    """
    arms, atoms, points = start.mass.shape
    size, rows, own = whole_blocks(points), count + 1 if moving else 1, 1 if joint else arms
    common = (
        np.zeros(count, np.int64),
        start.values,
        room((rows, arms, size)),
        room((rows, arms, size), np.float32),
        room((rows, arms, atoms, size), np.float32),
        room((rows, arms, atoms, size), np.float32),
        room((rows, arms, size, atoms), np.float32),
        room((count, own, size)),
        room((count, own, size // BLOCK)),
        room((count, arms)),
        room((count, size)),
        work_arrays(arms, horizon, size, atoms),
    )
    if not joint:
        separate = SeparateClouds(*common, np.zeros((count, arms, 2), np.int64), np.full(1, smooth))
        every = np.arange(arms)
        place(separate, np.zeros_like(every), every, start.mu[:, None, :], start.mass[:, None])
        return separate
    made = JointClouds(
        *common,
        np.zeros((arms, 2), np.int64),
        room((rows, arms, size), np.int64),
        room((rows, arms, atoms, size), np.float32),
        room((rows, arms, size), np.float32),
        np.zeros(2, np.int64),
        room((arms, horizon if separable else 0, size), np.float32),
        room((3, size), np.float32),
    )
    first = np.zeros(1, np.int64)
    place(made, first, first, start.mu[None], start.mass[None])
    return made


def whole_blocks(points: int) -> int:
    """Room for so many points: plans work on whole blocks."""
    return points + -points % BLOCK


def place(clouds: Any, rows: Ints, arms: Ints, mu: Any, mass: Any) -> None:
    """Points and tables for these rows: mu [B, k, n], mass [B, k, r, n].

    Separate arms: k = 1, of arm arms[i], and points rise. Joint ones: all of them, in the points'
    order. There is room for more points, which weigh nothing, and for more rewards, which never
    come.
    """
    points = mu.shape[2]
    means = np.empty((*mu.shape[:2], clouds.mu.shape[2]))
    means[:, :, :points], means[:, :, points:] = mu, mu[:, :, -1:]
    order = np.zeros((len(mu), 0, 0), np.int64)
    if isinstance(clouds, JointClouds):
        order = np.argsort(means, axis=2, kind="stable")
    _place(clouds, rows, arms, means, order, np.ascontiguousarray(mass))


@njit(**KERNEL)
def _place(clouds: Any, rows: Any, arms: Any, mu: Any, order: Any, mass: Any) -> None:
    for i in range(rows.size):
        place_one(clouds, rows[i], arms[i], mu[i], order[i], mass[i])


@njit(**SUMS)
def _scaled(row: NDArray, scale: np.float32, out: NDArray, logs: NDArray) -> None:
    """``out = row * scale`` and its logarithms."""
    for j in range(row.size):
        w = np.float32(row[j] * scale)
        out[j] = w
        logs[j] = log32(w)


@njit(**KERNEL)
def tabulate(mass: Any, likelihood: Any, logs: Any, law: Any) -> None:
    """From probabilities [r, n]: rows scaled to a largest entry of 1 [R, N], sums [N, R]."""
    atoms, points = mass.shape
    likelihood[:, points:] = 0.0
    likelihood[atoms:] = 0.0
    logs[:, points:] = LEAST_LOG
    logs[atoms:] = LEAST_LOG
    law[:] = 1.0
    for r in range(atoms):
        top = largest(mass[r])
        scale = np.float32(1.0 / top if top > 0.0 else 0.0)
        _scaled(mass[r], scale, likelihood[r, :points], logs[r, :points])
    for start in range(0, points, _STRIP):  # both tables stay near while they are turned over
        stop = min(start + _STRIP, points)
        for r in range(atoms):
            for j in range(start, stop):
                law[j, r] = mass[r, j] + (law[j, r - 1] if r > 0 else np.float32(0.0))


# ------------------------------------------------------------------ verbs


@verb
def choose_in(
    clouds: Any, s: int, rule: Any, limits: Any, rng: Any, period: int, remaining: int
) -> int:
    """`choose` of a rule with replication s as its family."""


@verb
def _settled(clouds: Any, s: int, arm: int, total: float) -> None:
    """Weights of that sum made to add to one, their sums and the arms' means."""


@verb
def place_one(clouds: Any, row: int, arm: int, mu: Any, order: Any, mass: Any) -> None:
    """One row of `place`, mu with whole blocks of points and the order of each of its rows."""


@implements(place_one, SeparateClouds)
def _(clouds, row, arm, mu, order, mass):
    _copy(mu[0], clouds.mu[row, arm])
    _copy(mu[0], clouds.mu32[row, arm])
    tabulate(mass[0], clouds.likelihood[row, arm], clouds.logs[row, arm], clouds.law[row, arm])


@implements(place_one, JointClouds)
def _(clouds, row, arm, mu, order, mass):
    for a in range(mu.shape[0]):
        _copy(mu[a], clouds.mu[row, a])
        _copy(mu[a], clouds.plain_mu[row, a])
        _copy(order[a], clouds.order[row, a])
        tabulate(mass[a], clouds.likelihood[row, a], clouds.logs[row, a], clouds.law[row, a])
        for j in range(mu.shape[1]):
            at = order[a, j]
            clouds.mu32[row, a, j] = mu[a, at]
            for r in range(clouds.likelihood.shape[2]):
                clouds.ordered[row, a, r, j] = clouds.likelihood[row, a, r, at]


@implements(choose_in, SeparateClouds)
def _(clouds, s, rule, limits, rng, period, remaining):
    row = clouds.slot[s]
    family = Points(
        clouds.weights[s],
        clouds.values,
        clouds.mu[row],
        clouds.likelihood[row],
        clouds.logs[row],
        clouds.law[row],
        clouds.mu32[row],
        clouds.likelihood[row],
        clouds.weights[s],
        clouds.sums[s],
        clouds.means[s],
        clouds.span[s],
        clouds.smooth,
        clouds.work,
    )
    return verbs.choose(rule, family, limits, rng, period, remaining)


@implements(choose_in, JointClouds)
def _(clouds, s, rule, limits, rng, period, remaining):
    row = clouds.slot[s]
    family = JointPoints(
        clouds.weights[s, 0],
        clouds.values,
        clouds.mu[row],
        clouds.likelihood[row],
        clouds.logs[row],
        clouds.law[row],
        clouds.order[row],
        clouds.mu32[row],
        clouds.ordered[row],
        clouds.weights[s, 0],
        clouds.sums[s, 0],
        clouds.means[s],
        clouds.reach,
        clouds.span,
        clouds.likelihood[row],
        clouds.plain_mu[row],
        clouds.fits,
        clouds.spare,
        clouds.work,
    )
    return verbs.choose(rule, family, limits, rng, period, remaining)


@njit(**SUMS)
def _times(weights: NDArray, row: NDArray, out: NDArray) -> tuple[float, float]:
    """``out = weights * row``; its sum and its sum of squares."""
    total, squares = 0.0, 0.0
    for j in range(weights.size):
        w = weights[j] * row[j]
        out[j] = w
        total += w
        squares += w * w
    return total, squares


@njit(**KERNEL)
def _copy(source: NDArray, target: NDArray) -> None:
    for j in range(source.size):
        target[j] = source[j]


@njit(**INLINE)
def _size(total: float, squares: float) -> float:
    return total * total / squares if squares > 0.0 and total < np.inf else 0.0


@implements(_settled, SeparateClouds)
def _(clouds, s, arm, total):
    weights = clouds.weights[s, arm]
    settle(weights, clouds.sums[s, arm], total, clouds.span[s, arm])
    clouds.means[s, arm] = dot(weights, clouds.mu[clouds.slot[s], arm])


@implements(_settled, JointClouds)
def _(clouds, s, arm, total):
    weights = clouds.weights[s, 0]
    settle(weights, clouds.sums[s, 0], total, clouds.reach)
    for a in range(clouds.means.shape[1]):
        clouds.means[s, a] = dot(weights, clouds.mu[clouds.slot[s], a])


@njit(**INLINE)
def _own(clouds: Any, arm: int) -> int:
    """Which row of weights the arm's rewards change."""
    return arm if clouds.weights.shape[1] > 1 else 0


@njit(**INLINE)
def start_cloud(clouds: Any, s: int, weights: Any) -> None:
    """Replication s back at the start, with these weights [K or 1, N]."""
    clouds.slot[s] = 0
    for a in range(weights.shape[0]):
        put_weights(clouds, s, a, weights[a])


@njit(**INLINE)
def weigh(clouds: Any, s: int, arm: int, row: Any, least: float) -> float:
    """Multiply weights by a row of likelihoods [N]; returns the effective sample size.

    Where that lies below ``least`` the weights stay as they are, for the cloud has to be moved.
    ``new`` has what they would be, not made to add to one.
    """
    weights = clouds.weights[s, _own(clouds, arm)]
    total, squares = _times(weights, row, clouds.new[s])
    ess = _size(total, squares)
    if ess > 0.0 and ess >= least:
        _copy(clouds.new[s], weights)
        _settled(clouds, s, arm, total)
    return ess


@njit(**INLINE)
def put_weights(clouds: Any, s: int, arm: int, weights: Any) -> None:
    """Of the cloud's points, adding to one; those beyond weigh nothing."""
    own = clouds.weights[s, _own(clouds, arm)]
    own[weights.size :] = 0.0
    _copy(weights, own)
    _settled(clouds, s, arm, 1.0)
