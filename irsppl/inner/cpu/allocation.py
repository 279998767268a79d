"""Max-plus allocation: the inner problem of IRS.V-Zero for separable payoffs.

Given cumulative payoffs ``S[a, n]`` (what the first n pulls of arm a pay, ``S[a, 0] = 0``), find

    max { sum_a S[a, n_a] : n_a >= 0, n_1 + .. + n_K = total }

by one sup-convolution per arm, ``M_a[n] = max_m M_{a-1}[n - m] + S[a, m]`` (paper, appendix on
the implementation of IRS.V-Zero), at most O(K total^2).  Three things make it cheaper:

* The last arm is needed at ``n = total`` only.
* Pulls that another arm would surely pay better are left out beforehand.  If every single pull of
  arm b pays at least l, moving all n pulls of arm a over to b earns at least n l, so a count n
  with ``S[a, n] < n l`` is never optimal.  What remains is ``n_a <= cap_a``, with ``cap_a`` the
  largest count that passes; arms whose cap is zero drop out.
* The optimal counts are found afterwards, by one maximum per arm along the optimal allocation,
  so the convolution keeps values only.

Ties: arms are settled from the last to the first, and each takes the smallest count that attains
the maximum given what the later arms took.
"""

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from irsppl.inner.arrays import Floats, Ints
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.rng import APART, KERNEL

PAD: Final = 8  # guard cells on either side of a row: as many shifts as the convolution has a pass

# Values may be minus infinity in guard cells, so of the fast-math flags only those that let a
# conditional become a vector maximum are set.
_MAXPLUS: Final = {**KERNEL, "fastmath": {"nnan", "nsz"}}


@njit(**KERNEL)
def row_stride(horizon: int) -> int:
    """Distance between rows of a workspace for totals up to ``horizon``."""
    # A multiple of 16 cells keeps the rows of single precision aligned to cache lines.
    return (horizon + 1 + 2 * PAD + 15) // 16 * 16


def workspace(
    num_arms: int, horizon: int, dtype: np.dtype | type = np.float32
) -> tuple[NDArray, Ints, Floats]:
    """Work arrays for :func:`solve`: cells [2 K stride], marks [3 K] and least [K].

    The payoff ``S[a, n]`` belongs at ``cells[a * row_stride(horizon) + PAD + n]``.
    """
    cells = np.full(2 * num_arms * row_stride(horizon), -np.inf, dtype)
    return cells, np.zeros(3 * num_arms, np.int64), np.zeros(num_arms)


@njit(**_MAXPLUS)
def _convolve(cells: NDArray, x: int, y: int, y_last: int, z: int, z_last: int) -> None:
    """``z[n] = max_m x[n - m] + y[m]``, n = 0 .. z_last, m = 0 .. min(y_last, n).

    ``x``, ``y`` and ``z`` are offsets of rows in ``cells``.  ``x`` needs -inf in the PAD cells
    before it and must be meant up to ``x[z_last]``, ``y`` up to ``y[y_last + PAD - 1]``.
    """
    for n in range(z_last + 1):
        cells[z + n] = -np.inf
    for m in range(0, y_last + 1, 8):
        # Eight shifts per pass, so that z is loaded and stored once for eight candidates.  The
        # guard cells of x and y stand in for shifts that do not exist.
        y0, y1, y2, y3 = cells[y + m], cells[y + m + 1], cells[y + m + 2], cells[y + m + 3]
        y4, y5, y6, y7 = cells[y + m + 4], cells[y + m + 5], cells[y + m + 6], cells[y + m + 7]
        count = z_last + 1 - m
        # Indices that are plainly not negative: numba's wrap-around of negative ones would keep
        # the loop from being vectorised.
        xs = cells[x - 7 : x + count]
        zs = cells[z + m : z + m + count]
        for i in range(count):
            v0 = xs[i + 7] + y0
            v1 = xs[i + 6] + y1
            v2 = xs[i + 5] + y2
            v3 = xs[i + 4] + y3
            v4 = xs[i + 3] + y4
            v5 = xs[i + 2] + y5
            v6 = xs[i + 1] + y6
            v7 = xs[i] + y7
            # The old value enters first: as the last operand it would make the store conditional.
            old = zs[i]
            v0 = v0 if v0 > old else old
            v0 = v0 if v0 > v1 else v1
            v2 = v2 if v2 > v3 else v3
            v4 = v4 if v4 > v5 else v5
            v6 = v6 if v6 > v7 else v7
            v0 = v0 if v0 > v2 else v2
            v4 = v4 if v4 > v6 else v6
            zs[i] = v0 if v0 > v4 else v4


@njit(**KERNEL)
def _cap(row: NDArray, total: int, least: float, floor: float) -> int:
    """Largest count whose payoff is at least ``floor`` per pull, up to rounding.

    ``least`` is the smallest payoff of one pull in ``row`` [total + 1].
    """
    slack = 4.0 * np.float64(np.finfo(row.dtype).eps)
    m = total
    while m > 0:
        deficit = m * floor - row[m]
        if deficit <= slack * (abs(row[m]) + abs(floor) * m):
            break
        # Each pull fewer costs at least `least` and saves `floor`, which bounds how soon the
        # deficit can be made good.
        m -= max(1, int(deficit / (floor - least)))
    return max(m, 0)


@njit(**APART)
def solve(
    cells: NDArray,
    marks: Ints,
    least: Floats,
    num_arms: int,
    horizon: int,
    total: int,
    counts: NDArray[np.int32],
) -> float:
    """Solve one allocation problem in place.

    ``cells`` and ``marks`` come from :func:`workspace` ``(num_arms, horizon)``, with the payoffs
    of arm a at ``cells[a * row_stride(horizon) + PAD + n]``, n = 0 .. total, ``total <= horizon``.
    ``least`` [K] holds a lower bound on what a single pull of each arm pays; the closer, the less
    work.  Writes ``counts`` [K] and returns the best value.  The payoffs survive; the guard cells
    behind them do not.
    """
    stride = row_stride(horizon)
    for a in range(num_arms):
        counts[a] = 0
    if total <= 0:
        return 0.0

    # The two arms whose worst pull pays best: an arm is compared with the best of the others.
    first, first_least, second_least = 0, -np.inf, -np.inf
    for a in range(num_arms):
        if least[a] > first_least:
            first, first_least, second_least = a, least[a], first_least
        elif least[a] > second_least:
            second_least = least[a]

    # marks: cap of each arm; offset and last index of the value row after each arm.
    caps = marks[:num_arms]
    rows = marks[num_arms : 2 * num_arms]
    lasts = marks[2 * num_arms : 3 * num_arms]
    for a in range(num_arms):
        s = a * stride + PAD
        floor = second_least if a == first else first_least
        caps[a] = _cap(cells[s : s + total + 1], total, least[a], floor)
        for i in range(PAD):
            cells[s - 1 - i] = -np.inf
            cells[s + total + 1 + i] = -np.inf
    # Arm `first` passes its own test at every count, so some allocation always remains.
    caps[first] = total
    rows[0], lasts[0] = PAD, caps[0]
    for a in range(1, num_arms - 1):
        s = a * stride + PAD
        x, x_last = rows[a - 1], lasts[a - 1]
        if caps[a] == 0:
            rows[a], lasts[a] = x, x_last
            continue
        z = (num_arms + a) * stride + PAD
        z_last = min(total, x_last + caps[a])
        # Shift by the shorter of the two.  Cells of a payoff row beyond its cap are worse but
        # genuine; beyond the last cell of a value row there is nothing but -inf.
        if caps[a] <= x_last:
            _convolve(cells, x, s, caps[a], z, z_last)
        else:
            _convolve(cells, s, x, x_last, z, z_last)
        for i in range(PAD):
            cells[z - 1 - i] = -np.inf
        for i in range(z + z_last + 1, z + total + 1 + PAD):
            cells[i] = -np.inf
        rows[a], lasts[a] = z, z_last

    # Settle the arms from the last to the first.
    tau = total
    best = np.float64(0.0)
    for a in range(num_arms - 1, 0, -1):
        s = a * stride + PAD
        x, x_last = rows[a - 1], lasts[a - 1]
        lowest = max(0, tau - x_last)
        value = cells[x + tau - lowest] + cells[s + lowest]
        chosen = lowest
        for m in range(lowest + 1, min(caps[a], tau) + 1):
            v = cells[x + tau - m] + cells[s + m]
            if v > value:
                value, chosen = v, m
        if a == num_arms - 1:
            best = np.float64(value)
        counts[a] = chosen
        tau -= chosen
    counts[0] = tau
    return best if num_arms > 1 else np.float64(cells[PAD + total])


@njit(**KERNEL)
def _solve_batch(
    values: NDArray,
    totals: Ints,
    cells: NDArray,
    marks: Ints,
    least: Floats,
    best: NDArray,
    counts: NDArray[np.int32],
) -> None:
    num_problems, num_arms, cols = values.shape
    stride = row_stride(cols - 1)
    for p in range(num_problems):
        for a in range(num_arms):
            s = a * stride + PAD
            lowest = np.inf
            cells[s] = values[p, a, 0]
            for n in range(totals[p]):
                step = np.float64(values[p, a, n + 1]) - np.float64(values[p, a, n])
                lowest = step if step < lowest else lowest
                cells[s + n + 1] = values[p, a, n + 1]
            least[a] = lowest
        best[p] = solve(cells, marks, least, num_arms, cols - 1, totals[p], counts[p])


def allocate_batch(
    values: ArrayLike, total: ArrayLike | None = None
) -> tuple[NDArray, NDArray[np.int32]]:
    """Best allocations of ``total`` pulls, for a batch of problems.

    values: cumulative payoffs [problem, arm, 0 .. T], finite, zero in the first column.  Single
    precision is solved in single precision, anything else in double. total: pulls to allocate, at
    most T, one number or [problem]; T when left out. Returns best [problem], in the precision of
    the solution, and counts int32 [problem, arm].
    """
    values = np.ascontiguousarray(values)
    if values.dtype != np.float32:
        values = values.astype(np.float64, copy=False)
    if values.ndim != 3 or 0 in values.shape[1:]:
        raise ValueError(f"values must have shape [problem, arm, T + 1], got {values.shape}")
    num_problems, num_arms, cols = values.shape
    totals = np.asarray(cols - 1 if total is None else total, np.int64)
    if np.any((totals < 0) | (totals >= cols)):
        raise ValueError(f"total must lie between 0 and {cols - 1}, got {total!r}")
    totals = np.ascontiguousarray(np.broadcast_to(totals, (num_problems,)))
    cells, marks, least = workspace(num_arms, cols - 1, values.dtype)
    best = np.empty(num_problems, values.dtype)
    counts = np.empty((num_problems, num_arms), np.int32)
    _solve_batch(values, totals, cells, marks, least, best, counts)
    return best, counts
