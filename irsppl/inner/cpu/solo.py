"""What pulls pay in IRS.V-Solo as a policy, along one sampled future.

One-armed values would need a table for every posterior and every number of periods, so one table of
Gaussian arms serves all: up to steps too small to matter, a one-armed value depends on what the
posterior is worth over what is left, and on the distance to the option in posterior deviations.
A policy needs no exact mean of zero.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np

from irsppl.inner.arrays import Floats, Singles
from irsppl.inner.cpu import families
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.one_armed import REACH, gaussian_slopes
from irsppl.inner.cpu.rng import KERNEL

_PRIOR, _PERIODS = 0.25, 400
CELLS = 24
_ROOT_HALF = math.sqrt(0.5)


@lru_cache(maxsize=1)
def slopes_table() -> tuple[Singles, float]:
    """(slope and half the curvature [periods, X, 2], step of its grid)."""
    table, step, _ = gaussian_slopes(_PRIOR, _PERIODS, _PERIODS)
    return table, step


@njit(**KERNEL)
def slopes_row(worth: float, left: int) -> tuple[int, float]:
    """(row of the table, what its slopes are multiplied by) of a posterior with so much left."""
    ratio = worth / left
    row = int((ratio * (_PERIODS - 1) - _PRIOR) / (1.0 + ratio) + 0.5)
    row = min(max(row, 0), _PERIODS - 2)
    return row, left / (_PERIODS - 1.0 - row)


@njit(**KERNEL)
def between(table: Singles, row: int, at: float) -> tuple[float, float]:
    """(slope, half the curvature) in a row, so many steps from the left end of the grid."""
    last = table.shape[1] - 1
    at = min(max(at, 0.0), np.float64(last))
    y = min(int(at), last - 1)
    up = at - y
    slope = (1.0 - up) * table[row, y, 0] + up * table[row, y + 1, 0]
    return slope, (1.0 - up) * table[row, y, 1] + up * table[row, y + 1, 1]


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
def _second(x: Floats) -> float:
    """The second largest."""
    first, second = -np.inf, -np.inf
    for value in x:
        if value > first:
            first, second = value, first
        elif value > second:
            second = value
    return second


@njit(**KERNEL)
def _others(levels: Floats, cdfs: Floats, low: float, width: float) -> None:
    """CDFs [K, cells + 1] of the arms at the edges of the cells."""
    for a in range(levels.shape[1]):
        for e in range(CELLS + 1):
            apart = (levels[0, a] - low - e * width) / levels[1, a]
            cdfs[a, e] = 0.5 * math.erfc(apart * _ROOT_HALF)


@njit(**KERNEL)
def _slopes(
    table: Singles,
    step: float,
    row: int,
    mean: float,
    sd: float,
    low: float,
    width: float,
    weights: Floats,
) -> tuple[float, float]:
    """(slope, half the curvature) of the one-armed value, averaged over the options."""
    slope, bend = 0.0, 0.0
    for g in range(CELLS):
        weight = weights[g]
        if weight > 1e-4:
            at = ((mean - low - (g + 0.5) * width) / sd + REACH) / step
            here = between(table, row, at)
            slope += weight * here[0]
            bend += weight * here[1]
    return slope, bend


@njit(**KERNEL)
def pay(rule: Any, nu: Floats, noise_sd: Floats, periods: int, start: int, stride: int) -> None:
    """Running sums of what pulls pay, at ``cells[start + a stride + n]``; the least of one pull.

    Of the rule: ``paths`` [K, M + 1]: posterior means along the future, ``upto`` [K, periods + 1]:
    after how many rewards each pull pays, ``shown`` [K]: how many are expected; code: of the
    family; cdfs [K, CELLS + 1], weights [CELLS], levels [2, K]: work. ``nu`` [K]: what each
    posterior is worth now.
    """
    code, paths, cells, least = rule.code, rule.paths, rule.cells, rule.least
    cdfs, weights, levels, upto = rule.cdfs, rule.weights, rule.levels, rule.upto
    num_arms = nu.size
    early = max(1, int(rule.level * periods + 0.5))
    for a in range(num_arms):
        # Rewards that are pending come on top, unless they are too late.
        known = min(upto[a, 0] + early, upto[a, periods])
        mean = paths[a, known]
        levels[0, a] = mean
        levels[1, a] = max(_deviation(code, mean, nu[a] + known, noise_sd[a]), 1e-9)
    # Cells from below the second best of the arms to above the best.
    high = -np.inf
    for a in range(num_arms):
        least[a] = levels[0, a] - 3.5 * levels[1, a]
        high = max(high, levels[0, a] + 3.5 * levels[1, a])
    low = _second(least)
    width = (high - low) / CELLS
    _others(levels, cdfs, low, width)
    for a in range(num_arms):
        before = 0.0
        for g in range(CELLS):
            below = 1.0
            if g < CELLS - 1:
                for b in range(num_arms):
                    if b != a:
                        below *= cdfs[b, g + 1]
            weights[g] = below - before
            before = below
        place = start + a * stride
        cells[place] = 0.0
        total, lowest = 0.0, np.inf
        last = math.ceil(rule.shown[a] - 1e-9)
        for n in range(periods):
            k = upto[a, n]
            mean = paths[a, k]
            pays, left = mean, last - k
            if left > 0 and upto[a, n + 1] > k:  # the pull shows a reward, in time
                worth = nu[a] + k
                sd = max(_deviation(code, mean, worth, noise_sd[a]), 1e-9)
                row, times = slopes_row(worth, left)
                slope, bend = _slopes(rule.table, rule.step, row, mean, sd, low, width, weights)
                change = paths[a, k + 1] - mean
                after = _deviation(code, paths[a, k + 1], worth + 1.0, noise_sd[a])
                square = change * change + after * after - sd * sd
                bend *= math.sqrt(times) / (sd * math.sqrt(worth))
                pays -= rule.scale * times * (change * slope + square * bend)
            lowest = min(lowest, pays)
            total += pays
            cells[place + n + 1] = total
        least[a] = lowest
