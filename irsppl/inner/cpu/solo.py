"""IRS.V-Solo as a policy: the arm that one sampled future speaks for.

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
from numpy.typing import NDArray

from irsppl.inner.cpu import allocation, families
from irsppl.inner.cpu.allocation import PAD
from irsppl.inner.cpu.one_armed import REACH, gaussian_slopes
from irsppl.inner.cpu.rng import KERNEL

__all__ = ["most_pulled", "slopes_table", "workspace"]

_PRIOR, _PERIODS = 0.25, 400
_CELLS = 24
_ROOT_HALF = math.sqrt(0.5)

_Scratch: TypeAlias = tuple[NDArray, ...]


def workspace(num_arms: int, horizon: int) -> _Scratch:
    """Work arrays: cells, marks, least of `allocation.workspace`; counts [K]; paths [K, T];
    cdfs [K, cells + 1]; weights [cells]; mean and deviation of each arm at the level [2, K]."""
    return (
        *allocation.workspace(num_arms, horizon),
        np.empty(num_arms, np.int32),
        np.empty((num_arms, horizon)),
        np.empty((num_arms, _CELLS + 1)),
        np.empty(_CELLS),
        np.empty((2, num_arms)),
    )


@lru_cache(maxsize=1)
def slopes_table() -> tuple[NDArray[np.float32], float]:
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
def most_pulled(
    family: int,
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
    """The arm with the most pulls in the best allocation of one future.

    ``scratch`` holds the posterior means along it, paths [K, remaining]; ``horizon`` is what it was
    made for.
    """
    cells, marks, least, counts, paths, cdfs, weights, levels = scratch
    num_arms = nu.size
    known = min(max(1, int(level * remaining + 0.5)), remaining - 1)
    for a in range(num_arms):
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
