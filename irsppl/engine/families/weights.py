"""Arithmetic on the weights of points, shared by the beliefs that are made of them."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from irsppl.inner.cpu import rng as random
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.rng import KERNEL

# Share of the largest weight below which plans leave out a point at the end of its arm's stretch.
NEGLIGIBLE: Final = 1e-7
# The same along a future, as a share of all weights: points that fall below it are left out.
LEAST_SHARE: Final = 1e-9
# Weights along a future are scaled once they add up to less than one over this.
RESCALE: Final = 1e10
# Weights below this are set to zero: arithmetic on the smallest floats is a hundred times slower.
NOTHING: Final = np.float32(1e-30)
# Sums may be taken in any order; without that they are not vectorised.
SUMS: Final = {**KERNEL, "fastmath": {"reassoc", "contract", "nsz"}}
_LEAST: Final = 1e-290
# Points come in blocks of so many, and plans work on whole blocks: a vectorised loop has no rest
# then, and what one step stores the next one loads in the same pieces.
BLOCK: Final = 32
# Log-likelihoods this far below the largest count for nothing.
FAR: Final = -45.0


@njit(**KERNEL)
def atom_of(values: NDArray[np.float64], arm: int, reward: float) -> int:
    """The atom nearest to a reward, so that rounding does no harm."""
    best = 0
    for r in range(1, values.shape[1]):
        if abs(values[arm, r] - reward) < abs(values[arm, best] - reward):
            best = r
    return best


@njit(**KERNEL)
def find(sums: NDArray[np.float64], level: float) -> int:
    """The first place whose running sum exceeds ``level``; the last one at most."""
    low, high = 0, sums.size - 1
    while low < high:
        middle = (low + high) // 2
        if sums[middle] > level:
            high = middle
        else:
            low = middle + 1
    return low


@njit(**KERNEL)
def draw_point(rng: NDArray[np.uint64], sums: NDArray[np.float64]) -> int:
    """A point with probability proportional to its weight."""
    return find(sums, random.uniform(rng) * sums[sums.size - 1])


@njit(**KERNEL)
def draw_atom(rng: NDArray[np.uint64], law: NDArray[np.float64]) -> int:
    """A reward atom of a point, ``law`` [R] cumulative."""
    u = random.uniform(rng)
    if law.size == 2:
        return 0 if u < law[0] else 1
    return find(law, u)


@njit(**SUMS)
def reweigh(weights: NDArray, row: NDArray, mu: NDArray) -> tuple[float, float]:
    """Multiply weights by a row of likelihoods; their sum and their sum with the means."""
    total, first = 0.0, 0.0
    for j in range(weights.size):
        w = weights[j] * row[j]
        weights[j] = w
        total += w
        first += w * mu[j]
    return total, first


@njit(**SUMS)
def step(
    before: NDArray[np.float32],
    row: NDArray[np.float32],
    mu: NDArray[np.float32],
    after: NDArray[np.float32],
) -> tuple[np.float32, np.float32]:
    """``after = before * row``; its sum and its sum with the means."""
    total, first = np.float32(0.0), np.float32(0.0)
    for j in range(before.size):
        w = before[j] * row[j]
        w = w if w > NOTHING else np.float32(0.0)
        after[j] = w
        total += w
        first += w * mu[j]
    return total, first


@njit(**SUMS)
def scaled_step(
    before: NDArray[np.float32],
    row: NDArray[np.float32],
    mu: NDArray[np.float32],
    scale: np.float32,
    after: NDArray[np.float32],
) -> tuple[np.float32, np.float32]:
    """The same with ``before`` scaled."""
    total, first = np.float32(0.0), np.float32(0.0)
    for j in range(before.size):
        w = before[j] * scale * row[j]
        w = w if w > NOTHING else np.float32(0.0)
        after[j] = w
        total += w
        first += w * mu[j]
    return total, first


@njit(**SUMS)
def excess(weights: NDArray[np.float32], mu: NDArray[np.float32], lam: np.float32) -> np.float32:
    """sum of weights (mu - lam), over points that all lie above lam."""
    total = np.float32(0.0)
    for j in range(weights.size):
        total += weights[j] * (mu[j] - lam)
    return total


@njit(**KERNEL)
def tally(rng: NDArray[np.uint64], law: NDArray[np.float64], n: int, out: NDArray) -> None:
    """How often each atom comes up in n rewards at one point, ``law`` [R] cumulative."""
    left = n
    past = 0.0
    for r in range(law.size - 1):
        rest = 1.0 - past
        share = (law[r] - past) / rest if rest > 0.0 else 1.0
        out[r] = random.binomial(rng, left, min(max(share, 0.0), 1.0)) if left > 0 else 0
        left -= out[r]
        past = law[r]
    out[law.size - 1] = left


@njit(**SUMS)
def add(scores: NDArray[np.float64], logs: NDArray[np.float64], times: float) -> None:
    for j in range(scores.size):
        scores[j] += times * logs[j]


@njit(**KERNEL)
def add_counts(
    scores: NDArray[np.float64], logs: NDArray[np.float64], counts: NDArray[np.int64]
) -> None:
    """Add the log-likelihood of so many rewards of each atom; logs [R, N]."""
    for r in range(counts.size):
        # A reward that did not come up says nothing, however unlikely: 0 times -inf is 0.
        if counts[r] > 0:
            add(scores, logs[r], float(counts[r]))


@njit(**KERNEL)
def settle(
    weights: NDArray[np.float64], sums: NDArray[np.float64], total: float, span: NDArray[np.int64]
) -> None:
    """Weights that add to one, their running sums, and the stretch that counts."""
    inv = 1.0 / total
    running = 0.0
    top = 0.0
    for j in range(weights.size):
        w = weights[j] * inv
        w = w if w > _LEAST else 0.0
        weights[j] = w
        running += w
        sums[j] = running
        top = w if w > top else top
    low, high = 0, weights.size
    while weights[low] < NEGLIGIBLE * top:
        low += 1
    while weights[high - 1] < NEGLIGIBLE * top:
        high -= 1
    span[0] = low - low % BLOCK
    span[1] = high + (-high) % BLOCK


@njit(**SUMS)
def dot(x: NDArray, y: NDArray) -> float:
    total = 0.0
    for j in range(x.size):
        total += x[j] * y[j]
    return total


@njit(**KERNEL)
def posterior_mean(
    weights: NDArray[np.float64], scores: NDArray[np.float64], mu: NDArray[np.float64]
) -> float:
    """Mean of mu under weights times exp(scores)."""
    top = -np.inf
    for j in range(scores.size):
        if scores[j] > top and weights[j] > 0.0:
            top = scores[j]
    total, first = 0.0, 0.0
    for j in range(scores.size):
        if scores[j] - top > FAR:
            w = weights[j] * np.exp(scores[j] - top)
            total += w
            first += w * mu[j]
    return first / total


@njit(**KERNEL)
def first_above(mu: NDArray[np.float32], lam: float, low: int, high: int) -> int:
    """The first of mu[low:high] above lam; high where none is."""
    while low < high:
        middle = (low + high) // 2
        if mu[middle] > lam:
            high = middle
        else:
            low = middle + 1
    return low


@njit(**KERNEL)
def narrow(row: NDArray[np.float32], low: int, high: int, least: float) -> tuple[int, int]:
    """The stretch without the blocks at its ends whose weights all lie below ``least``."""
    while high - low > BLOCK and row[low + BLOCK - 1] < least:
        for j in range(low, low + BLOCK):
            if row[j] >= least:
                return low, high
        low += BLOCK
    while high - low > BLOCK and row[high - BLOCK] < least:
        for j in range(high - BLOCK, high):
            if row[j] >= least:
                return low, high
        high -= BLOCK
    return low, high


def blocks(array: NDArray, axis: int, fill: str) -> NDArray:
    """The array with whole blocks of points: what is added is "zero", or as the "last" one."""
    more = -array.shape[axis] % BLOCK
    pad = [(0, more if i == axis else 0) for i in range(array.ndim)]
    return np.pad(array, pad) if fill == "zero" else np.pad(array, pad, mode="edge")
