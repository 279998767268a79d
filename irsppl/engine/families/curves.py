"""Rewards of infinitely many values, at points that stay where they are.

Only the user's model knows the density of a reward. It is asked once, on a grid: the log-likelihood
at each point is then a curve over rewards, and cubic between four knots. Where that is not good to
`_TOLERANCE` at the middle of a cell, and beyond the grid, rewards get rows of their own, computed
before play begins; so does a reward that comes again and again (no sale). Plans draw from bins of
the same grid, and from such rewards.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from irsppl.beliefs import batch, reward_logs, value_likelihoods
from irsppl.engine.families.memory import blocks, lined_up
from irsppl.engine.families.weights import LEAST_LOG

# Error of the log-likelihood of one reward, up to a constant for all points.
_TOLERANCE = 1e-6
# Points this far below the best one do not count.
_FAR = 30.0
_CELLS, _MOST_CELLS = 256, 4096
_MOST_BYTES = 64 * 2**20
# What the grid has beyond the rewards that it was laid for, as a share of it on either side.
_MARGIN = 0.05
# Share of rewards that may need rows of their own.
_ENOUGH, _TOO_MANY = 0.01, 0.05
# Draws that are alike by chance: up to three, or this share of all.
_ALIKE, _RARE = 3, 0.002
# Bins of plans: the fewest that keep so much of what a reward tells neighbouring points apart by.
_BINS = (32, 64, 128, 256)
_KEPT_INFORMATION = 0.98


class Axis(NamedTuple):
    """A line on which rewards of one law are spread about evenly."""

    low: float
    high: float
    whole: bool
    centre: float
    width: float

    def to_line(self, rewards: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.whole:
                return rewards
            if np.isfinite(self.low) and np.isfinite(self.high):
                return np.log(rewards - self.low) - np.log(self.high - rewards)
            if np.isfinite(self.low):
                return np.log(rewards - self.low)
            if np.isfinite(self.high):
                return -np.log(self.high - rewards)
            return np.arcsinh((rewards - self.centre) / self.width)

    def from_line(self, x: np.ndarray) -> np.ndarray:
        if self.whole:
            return x
        if np.isfinite(self.low) and np.isfinite(self.high):
            return self.low + (self.high - self.low) / (1 + np.exp(-x))
        if np.isfinite(self.low):
            return self.low + np.exp(x)
        if np.isfinite(self.high):
            return self.high - np.exp(-x)
        return self.centre + self.width * np.sinh(x)


class Curve(NamedTuple):
    """Log-likelihoods [G, M] of one arm at knots ``start + step * g`` of its axis."""

    axis: Axis
    start: float
    step: float
    logs: np.ndarray
    good: np.ndarray  # [G - 1] cells
    atoms: np.ndarray  # [A] rewards that have a probability, not a density


class Arm(NamedTuple):
    """What evaluates an arm's densities."""

    model: Any
    params: Any  # by name of the latent, [M, ...]
    number: int | None  # of arms that share their latents

    def raw_logs(self, rewards: np.ndarray) -> np.ndarray:
        """[B, M]; a reward that is impossible everywhere is equally likely at all points."""
        found = reward_logs(self.model, self.params, rewards, self.number)
        return np.maximum(np.where(np.isnan(found), LEAST_LOG, found), LEAST_LOG)


class Curves(NamedTuple):
    """Of K arms; N: M points in whole blocks."""

    arms: tuple[Arm, ...]
    each: tuple[Curve | None, ...]  # None where an arm has few rewards
    logs: np.ndarray  # [K, G, N]
    mass: np.ndarray  # [K, R, M] probabilities of bins, for plans

    def code(self, rewards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Places [S, K, T] of rewards on their curves, or -1 - r for row r of the rows [B, N]."""
        places, rows, count = np.empty(rewards.shape), [], 0
        for a, (arm, curve) in enumerate(zip(self.arms, self.each, strict=True)):
            own, at = rewards[:, a], places[:, a]
            rest = np.ones(own.shape, bool)
            if curve is not None:
                at[:] = (curve.axis.to_line(own) - curve.start) / curve.step
                cells = np.where(at >= 0, at, 0).clip(0, len(curve.good) - 1).astype(int)
                rest = ~((at >= 0) & (at < len(curve.good)) & curve.good[cells])
                rest |= np.isin(own.astype(curve.atoms.dtype), curve.atoms)
            values, which = np.unique(own[rest], return_inverse=True)
            if values.size:
                at[rest] = -1.0 - count - which.reshape(-1)
                logs = arm.raw_logs(values)
                rows.append(logs - logs.max(axis=1, keepdims=True))
                count += values.size
        points = self.logs.shape[2]
        found = np.concatenate(rows) if rows else np.zeros((1, points))
        return places, blocks(found.astype(np.float32), 1, "last")


def curves(arms: tuple[Arm, ...]) -> Curves | None:
    """None where the grid would be too large, or its cells too often no good."""
    made: dict[Any, tuple[Curve | None, np.ndarray] | None] = {}
    found = []
    for arm in arms:
        key = (arm.model, arm.number, *(leaf.tobytes() for leaf in arm.params.values()))
        if key not in made:
            made[key] = _arm_curve(arm, _MOST_BYTES // len(arms))
        one = made[key]
        if one is None:
            return None
        found.append(one)
    each = tuple(curve for curve, _ in found)
    knots = max(0 if curve is None else len(curve.logs) for curve in each)
    bins = max(len(mass) for _, mass in found)
    points = found[0][1].shape[1]
    logs = np.zeros((len(arms), knots, points), np.float32)
    mass = np.zeros((len(arms), bins, points))
    for a, (curve, own) in enumerate(found):
        mass[a, : len(own)] = own
        if curve is not None:
            logs[a, : len(curve.logs)] = curve.logs
    light = tuple(None if c is None else c._replace(logs=c.logs[:0]) for c in each)
    return Curves(arms, light, lined_up(blocks(logs, 2, "last")), mass)


def _arm_curve(arm: Arm, most_bytes: int) -> tuple[Curve | None, np.ndarray] | None:
    """The curve and the bins [R, M] of one arm."""
    if arm.model.reward_values is not None:
        values = np.asarray(arm.model.reward_values, np.float64)
        return None, value_likelihoods(arm.model, arm.params, values, arm.number).T
    support = arm.model.support
    draws = np.asarray(batch.reward_draws(arm.model, arm.params, arm.number))
    atoms = draws[:0, 0] if support.integer else _atoms(arm, draws)
    spread = draws[~np.isin(draws, atoms)].astype(np.float64)
    if spread.size < _ENOUGH * draws.size:
        return None
    first, quarter, middle, three, last = np.quantile(spread, [0.001, 0.25, 0.5, 0.75, 0.999])
    ends = float(support.low), float(support.high)
    axis = Axis(*ends, support.integer, middle, (three - quarter) / 1.35 or 1.0)
    most = min(_MOST_CELLS, most_bytes // (4 * draws.shape[1]))
    if axis.whole:
        # Each whole number has a knot of its own, and is never between two.
        first, last = np.floor(first), np.ceil(last)
        if last - first > most:
            return None
        x = np.arange(first, last + 2)
        logs, good = arm.raw_logs(x), np.ones(len(x) - 1, bool)
        weights = np.ones_like(x)
    else:
        low, high = axis.to_line(np.array([first, last]))
        if not np.isfinite(high - low):  # rounded to an end of the support, where densities end
            return None
        margin = _MARGIN * (high - low)
        x = np.linspace(low - margin, high + margin, _CELLS + 1)
        logs = arm.raw_logs(axis.from_line(x))
        while True:
            between = (x[1:] + x[:-1]) / 2
            exact = arm.raw_logs(axis.from_line(between))
            good = _good_cells(logs, exact)
            weights = np.gradient(axis.from_line(x))
            chance = (np.exp(logs) * weights[:, None]).mean(axis=1)
            chance /= chance.sum()
            bad = 0.5 * (chance[1:] + chance[:-1])[~good].sum()
            if bad < _ENOUGH or 2 * len(good) > most:
                break
            x = np.insert(x, np.arange(1, len(x)), between)
            logs = np.insert(logs, np.arange(1, len(logs)), exact, axis=0)
        if bad > _TOO_MANY:
            return None
    logs, mass = logs - logs.max(axis=1, keepdims=True), _bins(np.exp(logs) * weights[:, None])
    if atoms.size:
        chance = np.exp(arm.raw_logs(atoms))
        mass = np.concatenate([chance, mass * np.maximum(1 - chance.sum(axis=0), 0)])
        mass /= mass.sum(axis=0)
    return Curve(axis, x[0], x[1] - x[0], logs, good, atoms), mass


def _atoms(arm: Arm, draws: np.ndarray) -> np.ndarray:
    """Rewards of the draws [D, M] that have a probability: they are drawn as often as it says."""
    values, times = np.unique(draws, return_counts=True)
    often = times > max(_ALIKE, _RARE * draws.size)
    values, share = values[often], times[often] / draws.size
    if values.size:  # a density, which is no probability, may be infinite
        chance = np.exp(arm.raw_logs(values)).mean(axis=1)
        values = values[np.abs(share - chance) < 5 * np.sqrt(chance / draws.size)]
    return values


def _good_cells(logs: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Cells [G - 1] in whose middle the cubic through four knots is close to ``exact`` [G - 1, M].

    Only differences between points count.
    """
    middle = slice(1, -1)
    guess = (9 * (logs[1:-2] + logs[2:-1]) - logs[:-3] - logs[3:]) / 16
    gap, best = guess - exact[middle], exact[middle].argmax(axis=1)[:, None]
    gap = np.abs(gap - np.take_along_axis(gap, best, axis=1))
    near = exact[middle] > np.take_along_axis(exact[middle], best, axis=1) - _FAR
    good = np.zeros(len(exact), bool)
    good[middle] = np.max(np.where(near, gap, 0), axis=1) < _TOLERANCE
    return good


def _bins(mass: np.ndarray) -> np.ndarray:
    """Probabilities [R, M] of bins about equally likely, from those of knots [G, M] up to scale."""
    total = mass.sum(axis=0)
    law = np.where(total > 0, mass / np.where(total > 0, total, 1), 1 / len(mass))
    below = np.cumsum(law.mean(axis=1))

    def information(law: np.ndarray) -> float:
        return float(np.sum(np.diff(np.sqrt(law), axis=1) ** 2))

    for count in _BINS:
        edges = np.searchsorted(below, np.arange(1, count) / count) + 1
        starts = np.unique(np.append(0, edges[edges < len(law)]))
        binned = np.add.reduceat(law, starts, axis=0)
        if information(binned) >= _KEPT_INFORMATION * information(law):
            break
    return binned
