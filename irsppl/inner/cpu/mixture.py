"""The FH / V-Zero mixture (``irs.mix``) on the CPU: its inner problems.

The first n0 pulls of an arm pay mu_hat_0 .. mu_hat_{n0-1} along a sampled future, later ones
mu_hat_{T-1}.  The two cases of the solution are explained in :mod:`irsppl.inner.mixture`; with at
least K n0 periods left a decision costs K n0 draws and O(K^2 n0) additions, whatever T is.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from irsppl.inner.arrays import Floats, Ints
from irsppl.inner.cpu import allocation
from irsppl.inner.cpu.allocation import PAD
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.rng import KERNEL

# Work arrays of one call: cumulative prefix payoffs [K, n0 + 1], later payoffs [K], cells, marks
# and least of `allocation.workspace`, and counts [K].  Kernels must not allocate (see `KERNEL`).
Scratch: TypeAlias = tuple[Floats, Floats, Floats, Ints, Floats, NDArray[np.int32]]


@njit(**KERNEL)
def _best_count(row: Floats, n0: int, slope: float) -> tuple[float, int]:
    """max over m = 0 .. n0 of row[m] - m slope, and the smallest m that attains it."""
    best, chosen = row[0], 0
    for m in range(1, n0 + 1):
        excess = row[m] - m * slope
        if excess > best:
            best, chosen = excess, m
    return best, chosen


@njit(**KERNEL)
def _gain(row: Floats, n0: int, slope: float) -> float:
    """max over m = 0 .. n0 of row[m] - m slope; apart, because without the count it vectorises."""
    best = row[0]
    for m in range(1, n0 + 1):
        excess = row[m] - m * slope
        best = excess if excess > best else best
    return best


@njit(**KERNEL)
def _score(sums: Floats, later: Floats, n0: int, total: int, top: float, b: int) -> float:
    """Best value with b as the arm that takes the rest, less ``total * top``."""
    score = total * (later[b] - top) + sums[b, n0] - n0 * later[b]
    for a in range(later.size):
        if a != b:
            score += _gain(sums[a], n0, later[b])
    return score


@njit(**KERNEL)
def _solve_long(
    sums: Floats, later: Floats, n0: int, total: int, counts: NDArray[np.int32]
) -> float:
    """At least K n0 pulls: one arm takes what the others leave.

    The arm with the best slope is tried first.  Against the slope of arm b the other arms gain at
    most K n0 (highest - v_b) in all, which for long horizons rules out nearly every other b.
    """
    num_arms = later.size
    first, highest = 0, -np.inf
    for a in range(num_arms):
        first = a if later[a] > later[first] else first
        for m in range(n0):
            step = sums[a, m + 1] - sums[a, m]
            highest = step if step > highest else highest
    top = later[first]
    chosen = first
    best = _score(sums, later, n0, total, top, first)
    for b in range(num_arms):
        fixed = total * (later[b] - top) + sums[b, n0] - n0 * later[b]
        if b == first or fixed + num_arms * n0 * max(0.0, highest - later[b]) < best:
            continue
        score = _score(sums, later, n0, total, top, b)
        if score > best or (score == best and b < chosen):
            best, chosen = score, b
    left = total
    for a in range(num_arms):
        if a != chosen:
            _, count = _best_count(sums[a], n0, later[chosen])
            counts[a] = count
            left -= count
    counts[chosen] = left
    return total * top + best


@njit(**KERNEL)
def solve(n0: int, total: int, room: int, scratch: Scratch) -> float:
    """Solve in place for the prefix sums and later payoffs in ``scratch``; writes its counts.

    ``room``: the total that the workspace was made for, min(largest total, K n0).
    """
    sums, later, cells, marks, least, counts = scratch
    num_arms = later.size
    if total >= num_arms * n0:
        return _solve_long(sums, later, n0, total, counts)
    stride = allocation.row_stride(room)
    width = min(n0, total)
    for a in range(num_arms):
        start = a * stride + PAD
        lowest = later[a] if total > n0 else np.inf
        cells[start] = 0.0
        for m in range(1, width + 1):
            step = sums[a, m] - sums[a, m - 1]
            lowest = step if step < lowest else lowest
            cells[start + m] = sums[a, m]
        for m in range(width + 1, total + 1):
            cells[start + m] = sums[a, n0] + (m - n0) * later[a]
        least[a] = lowest
    return allocation.solve(cells, marks, least, num_arms, room, total, counts)


@njit(**KERNEL)
def _batch(
    prefix: Floats,
    later: Floats,
    total: int,
    room: int,
    scratch: Scratch,
    values: Floats,
    counts: NDArray[np.int32],
) -> None:
    num_problems, num_arms, n0 = prefix.shape
    sums, ends, found = scratch[0], scratch[1], scratch[5]
    for p in range(num_problems):
        for a in range(num_arms):
            ends[a] = later[p, a]
            sums[a, 0] = 0.0
            for n in range(n0):
                sums[a, n + 1] = sums[a, n] + prefix[p, a, n]
        values[p] = solve(n0, total, room, scratch)
        for a in range(num_arms):
            counts[p, a] = found[a]


# --- the functions others call ----------------------------------------------------------------


def workspace(num_arms: int, n0: int, total: int) -> tuple[int, Scratch]:
    """(room, work arrays) for up to ``total`` pulls; the convolution never sees K n0 or more."""
    room = min(total, num_arms * n0)
    cells, marks, least = allocation.workspace(num_arms, room, np.float64)
    sums = np.zeros((num_arms, n0 + 1))
    return room, (sums, np.zeros(num_arms), cells, marks, least, np.zeros(num_arms, np.int32))


def _arms(*fields: ArrayLike) -> list[Floats]:
    return [np.ascontiguousarray(np.asarray(field, np.float64)) for field in fields]


def mix_batch(prefix: ArrayLike, later: ArrayLike, total: int) -> tuple[Floats, NDArray[np.int32]]:
    """Best allocations of ``total`` pulls for a batch, in double precision.

    prefix: payoffs of the first n0 pulls, [problem, arm, n0]. later: payoff of every later pull,
    [problem, arm]. total: pulls to allocate, at least 1. Returns values [problem] and counts int32
    [problem, arm].
    """
    prefix, later = _arms(prefix, later)
    if prefix.ndim != 3 or 0 in prefix.shape[1:] or later.shape != prefix.shape[:2]:
        raise ValueError(
            "prefix and later must have shapes [problem, arm, n0] and [problem, arm], "
            f"got {prefix.shape} and {later.shape}"
        )
    if total < 1:
        raise ValueError(f"total must be at least 1, got {total}")
    num_problems, num_arms, n0 = prefix.shape
    values = np.empty(num_problems)
    counts = np.empty((num_problems, num_arms), np.int32)
    room, work = workspace(num_arms, n0, total)
    _batch(prefix, later, total, room, work, values, counts)
    return values, counts
