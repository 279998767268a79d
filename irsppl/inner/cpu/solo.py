"""IRS.V-Solo as a policy: whole paths and decisions, one random stream for each.

Each decision samples a future from the posterior and solves its leave-one-out inner problem, with
one-armed values for the periods that are left.  These would need a table for every posterior and
every number of periods, so one table of Gaussian arms serves all: up to steps too small to matter,
a one-armed value depends on what the posterior is worth over what is left, and on the distance to
the option in posterior deviations.  A policy needs no exact mean of zero.
"""

import math
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from irsppl.inner.cpu import allocation, families, rng
from irsppl.inner.cpu.allocation import PAD
from irsppl.inner.cpu.one_armed import REACH, gaussian_slopes
from irsppl.inner.cpu.rng import KERNEL

__all__ = ["solo_decide", "solo_paths"]

_PRIOR, _PERIODS = 0.25, 400
_CELLS = 24
_ROOT_HALF = math.sqrt(0.5)

# cells, marks, least of `allocation.workspace`; counts [K]; paths [K, T]; cdfs [K, cells + 1];
# weights [cells]; mean and deviation of each arm at the level [2, K].
_Scratch: TypeAlias = tuple[NDArray, ...]


@lru_cache(maxsize=1)
def _table() -> tuple[NDArray[np.float32], float]:
    table, step, _ = gaussian_slopes(_PRIOR, _PERIODS, _PERIODS)
    return table, step


@njit(**KERNEL)
def _deviation(family: int, mean: float, worth: float, noise_sd: float) -> float:
    """Posterior standard deviation of an arm's mean, about."""
    if family == families.BETA_BERNOULLI:
        return math.sqrt(mean * (1.0 - mean) / (worth + 1.0))
    if family == families.NORMAL_NORMAL:
        return noise_sd / math.sqrt(worth)
    if family == families.GAMMA_POISSON:
        return math.sqrt(mean / worth)
    return mean / math.sqrt(max(worth - 1.0, 0.5))


@njit(**KERNEL)
def _second(x: NDArray[np.float64]) -> float:
    """The second largest."""
    first, second = -np.inf, -np.inf
    for value in x:
        if value > first:
            first, second = value, first
        elif value > second:
            second = value
    return second


@njit(**KERNEL)
def _others(
    levels: NDArray[np.float64], cdfs: NDArray[np.float64], low: float, width: float
) -> None:
    """CDFs [K, cells + 1] of the arms at the edges of the cells."""
    for a in range(levels.shape[1]):
        for e in range(_CELLS + 1):
            apart = (levels[0, a] - low - e * width) / levels[1, a]
            cdfs[a, e] = 0.5 * math.erfc(apart * _ROOT_HALF)


@njit(**KERNEL)
def _slopes(
    table: NDArray[np.float32],
    step: float,
    row: int,
    mean: float,
    sd: float,
    low: float,
    width: float,
    weights: NDArray[np.float64],
) -> tuple[float, float]:
    """(slope, half the curvature) of the one-armed value, averaged over the options."""
    last = table.shape[1] - 1
    slope, bend = 0.0, 0.0
    for g in range(_CELLS):
        weight = weights[g]
        if weight > 1e-4:
            at = ((mean - low - (g + 0.5) * width) / sd + REACH) / step
            at = min(max(at, 0.0), np.float64(last))
            y = min(int(at), last - 1)
            up = at - y
            slope += weight * ((1.0 - up) * table[row, y, 0] + up * table[row, y + 1, 0])
            bend += weight * ((1.0 - up) * table[row, y, 1] + up * table[row, y + 1, 1])
    return slope, bend


@njit(**KERNEL)
def _choose(
    state: NDArray[np.uint64],
    family: int,
    xi: NDArray[np.float64],
    nu: NDArray[np.float64],
    noise_sd: NDArray[np.float64],
    remaining: int,
    horizon: int,
    scale: float,
    level: float,
    table: NDArray[np.float32],
    step: float,
    scratch: _Scratch,
) -> int:
    """The arm with the most pulls in the best allocation of one sampled future."""
    cells, marks, least, counts, paths, cdfs, weights, levels = scratch
    num_arms = xi.size
    known = min(max(1, int(level * remaining + 0.5)), remaining - 1)
    for a in range(num_arms):
        families.sample_path(
            state, family, xi[a], nu[a], noise_sd[a], remaining, paths[a], 0, False
        )
        worth = nu[a] + known
        levels[0, a] = paths[a, known]
        levels[1, a] = max(_deviation(family, paths[a, known], worth, noise_sd[a]), 1e-9)
    # Cells from below the second best of the arms to above the best.
    for a in range(num_arms):
        least[a] = levels[0, a] - 3.5 * levels[1, a]
    low, high = _second(least), -np.inf
    for a in range(num_arms):
        high = max(high, levels[0, a] + 3.5 * levels[1, a])
    width = (high - low) / _CELLS
    _others(levels, cdfs, low, width)
    stride = allocation.row_stride(horizon)
    for a in range(num_arms):
        before = 0.0
        for g in range(_CELLS):
            below = 1.0
            if g < _CELLS - 1:
                for b in range(num_arms):
                    if b != a:
                        below *= cdfs[b, g + 1]
            weights[g] = below - before
            before = below
        start = a * stride + PAD
        cells[start] = 0.0
        total, lowest = 0.0, np.inf
        for n in range(remaining):
            mean = paths[a, n]
            pay, left = mean, remaining - 1 - n
            if left > 0:
                worth = nu[a] + n
                sd = max(_deviation(family, mean, worth, noise_sd[a]), 1e-9)
                ratio = worth / left
                row = int((ratio * (_PERIODS - 1) - _PRIOR) / (1.0 + ratio) + 0.5)
                row = min(max(row, 0), _PERIODS - 2)
                times = left / (_PERIODS - 1.0 - row)
                slope, bend = _slopes(table, step, row, mean, sd, low, width, weights)
                change = paths[a, n + 1] - mean
                after = _deviation(family, paths[a, n + 1], worth + 1.0, noise_sd[a])
                square = change * change + after * after - sd * sd
                bend *= math.sqrt(times) / (sd * math.sqrt(worth))
                pay -= scale * times * (change * slope + square * bend)
            lowest = min(lowest, pay)
            total += pay
            cells[start + n + 1] = total
        least[a] = lowest
    allocation.solve(cells, marks, least, num_arms, horizon, remaining, counts)
    chosen = 0
    for a in range(1, num_arms):
        if counts[a] > counts[chosen]:
            chosen = a
    return chosen


@njit(**KERNEL)
def _greedy(xi: NDArray[np.float64], nu: NDArray[np.float64]) -> int:
    chosen = 0
    for a in range(1, xi.size):
        if xi[a] / nu[a] > xi[chosen] / nu[chosen]:
            chosen = a
    return chosen


@njit(**KERNEL)
def _play(
    family: int,
    xi0: NDArray[np.float64],
    nu0: NDArray[np.float64],
    noise_sd: NDArray[np.float64],
    remaining: int,
    rewards: NDArray,
    seeds: NDArray[np.uint64],
    state: NDArray[np.uint64],
    belief: NDArray[np.float64],
    pulls: NDArray[np.int64],
    scale: float,
    level: float,
    table: NDArray[np.float32],
    step: float,
    scratch: _Scratch,
    actions: NDArray[np.int16],
) -> None:
    """Fill ``actions`` [S, up to remaining]; one column is a decision."""
    xi, nu = belief[0], belief[1]
    for s in range(seeds.size):
        rng.seed_state(seeds[s], state)
        for a in range(xi0.size):
            xi[a], nu[a], pulls[a] = xi0[a], nu0[a], 0
        for t in range(actions.shape[1]):
            left = remaining - t
            if left == 1:
                arm = _greedy(xi, nu)
            else:
                arms = (family, xi, nu, noise_sd)
                rule = (scale, level, table, step)
                arm = _choose(state, *arms, left, remaining, *rule, scratch)
            actions[s, t] = arm
            if t + 1 < actions.shape[1]:
                xi[arm] += rewards[s, arm, pulls[arm]]
                nu[arm] += 1.0
                pulls[arm] += 1


def _run(
    family: int,
    xi: ArrayLike,
    nu: ArrayLike,
    noise_sd: ArrayLike,
    remaining: int,
    rewards: NDArray,
    seeds: NDArray,
    scale: float,
    level: float,
    periods: int,
) -> NDArray[np.int16]:
    xi, nu, noise_sd = (np.ascontiguousarray(x, np.float64) for x in (xi, nu, noise_sd))
    arms = len(xi)
    actions = np.empty((len(seeds), periods), np.int16)
    scratch = (
        *allocation.workspace(arms, remaining),
        np.empty(arms, np.int32),
        np.empty((arms, remaining)),
        np.empty((arms, _CELLS + 1)),
        np.empty(_CELLS),
        np.empty((2, arms)),
    )
    work = (np.empty(4, np.uint64), np.empty((2, arms)), np.empty(arms, np.int64))
    seeds = np.ascontiguousarray(seeds, np.uint64)
    rule = (float(scale), float(level), *_table(), scratch)
    _play(family, xi, nu, noise_sd, remaining, rewards, seeds, *work, *rule, actions)
    return actions


def solo_paths(
    scale: float,
    level: float,
    family: int,
    xi: ArrayLike,
    nu: ArrayLike,
    noise_sd: ArrayLike,
    rewards: NDArray,
    seeds: NDArray,
) -> NDArray[np.int16]:
    """Arms [S, T] along true rewards [S, K, T]; families as in :mod:`families`."""
    arms = (family, xi, nu, noise_sd)
    periods = rewards.shape[2]
    return _run(*arms, periods, rewards, seeds, scale, level, periods)


def solo_decide(
    scale: float,
    level: float,
    family: int,
    xi: ArrayLike,
    nu: ArrayLike,
    noise_sd: ArrayLike,
    remaining: int,
    seeds: NDArray,
) -> NDArray[np.int16]:
    """Arms [S], all from one state with so many periods left."""
    arms = (family, xi, nu, noise_sd)
    return _run(*arms, remaining, np.zeros((1, 1, 1)), seeds, scale, level, 1)[:, 0]
