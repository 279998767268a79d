"""Inner problems of leave-one-out penalties, for batches of futures.

The (n+1)-th pull of arm a pays ``means[a, n] - Z[a, n]`` with ``Z = innovation x slope``: the
innovation is what the next reward changes, of mean zero given the arm's own first n rewards, and
the slope a sum over columns, ``weights[a, c] x table(n, state; c)``, with weights that know the
other arms' rewards only.  What a pull pays depends on (a, n) alone, so the inner problem is the
allocation of IRS.V-Zero.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from irsppl.inner.cpu import allocation
from irsppl.inner.cpu.allocation import PAD, row_stride
from irsppl.inner.cpu.rng import KERNEL

__all__ = [
    "binary_hinge_paths",
    "binary_payoffs",
    "binary_totals",
    "leave_out_products",
    "smooth_payoffs",
    "smooth_totals",
    "solve_payoffs",
]

_FAST = {**KERNEL, "fastmath": {"reassoc", "contract", "nsz", "nnan"}}


@njit(**_FAST)
def _dot(x: NDArray, y: NDArray) -> float:
    total = x.dtype.type(0)
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


@njit(**_FAST)
def _binary_payoffs(
    rewards: NDArray,
    means: NDArray[np.float64],
    tables: NDArray,
    table_of: NDArray[np.int64],
    weights: NDArray,
    spans: NDArray[np.int64],
    payoffs: NDArray[np.float64],
    sums: NDArray[np.float64],
) -> None:
    futures, arms, horizon = rewards.shape
    for f in range(futures):
        collected = 0.0
        for a in range(arms):
            table = tables[table_of[a]]
            first, last = spans[f, a, 0], spans[f, a, 1]
            own = weights[f, a, first:last]
            s = 0
            total = 0.0
            payoffs[f, a, 0] = 0.0
            for n in range(horizon):
                row = n * (n + 1) // 2 + s
                mean = means[f, a, n]
                reward = rewards[f, a, n]
                z = (reward - mean) * _dot(own, table[row, first:last])
                collected += z
                total += mean - z
                payoffs[f, a, n + 1] = total
                s += int(reward)
        sums[f] = collected


def binary_payoffs(
    rewards: NDArray, means: NDArray, tables: NDArray, table_of: NDArray, weights: NDArray
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(cumulative payoffs [S, K, T+1], sum of all Z [S]) of arms with rewards 0 or 1.

    rewards [S, K, T]; means [S, K, >= T]: posterior means before each pull; tables [P, rows, C]
    from :func:`one_armed.binary_slopes`, table_of [K]; weights [S, K, C].
    """
    futures, arms, horizon = rewards.shape
    payoffs, sums = np.empty((futures, arms, horizon + 1)), np.empty(futures)
    spans = _spans(weights)
    _binary_payoffs(rewards, means, tables, table_of, weights, spans, payoffs, sums)
    return payoffs, sums


def _spans(weights: NDArray) -> NDArray[np.int64]:
    """[..., 2]: the columns outside which all weights are zero."""
    used = weights != 0
    last = weights.shape[-1] - np.argmax(used[..., ::-1], axis=-1)
    first = np.argmax(used, axis=-1)
    some = used.any(axis=-1)
    return np.stack([np.where(some, first, 0), np.where(some, last, 0)], axis=-1).astype(np.int64)


@njit(**_FAST)
def _binary_totals(
    rewards: NDArray,
    means: NDArray[np.float64],
    tables: NDArray,
    table_of: NDArray[np.int64],
    counts: NDArray[np.int32],
    totals: NDArray,
) -> None:
    futures, arms, _ = rewards.shape
    columns = tables.shape[2]
    for f in range(futures):
        for a in range(arms):
            table = tables[table_of[a]]
            out = totals[f, a]
            for c in range(columns):
                out[c] = 0.0
            s = 0
            for n in range(counts[f, a]):
                row = table[n * (n + 1) // 2 + s]
                reward = rewards[f, a, n]
                innovation = reward - means[f, a, n]
                for c in range(columns):
                    out[c] += innovation * row[c]
                s += int(reward)


def binary_totals(
    rewards: NDArray, means: NDArray, tables: NDArray, table_of: NDArray, counts: NDArray
) -> NDArray:
    """[S, K, C]: innovation x table summed over the first ``counts`` [S, K] pulls of each arm."""
    futures, arms, _ = rewards.shape
    totals = np.empty((futures, arms, tables.shape[2]), tables.dtype)
    _binary_totals(rewards, means, tables, table_of, np.asarray(counts, np.int32), totals)
    return totals


@njit(**_FAST)
def _smooth_payoffs(
    means: NDArray[np.float64],
    sds: NDArray[np.float64],
    index: NDArray[np.int16],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    tables: NDArray,
    table_of: NDArray[np.int64],
    lams: NDArray[np.float64],
    steps: NDArray[np.float64],
    reach: float,
    weights: NDArray,
    spans: NDArray[np.int64],
    payoffs: NDArray[np.float64],
    sums: NDArray[np.float64],
) -> None:
    futures, arms, size = means.shape
    cells, last = len(lams), tables.shape[3] - 1
    for f in range(futures):
        collected = 0.0
        of_sd = f if len(sds) > 1 else 0
        for a in range(arms):
            step = steps[table_of[a]]
            total = 0.0
            payoffs[f, a, 0] = 0.0
            for n in range(size - 1):
                mean, scale = means[f, a, n], 1.0 / (sds[of_sd, a, n] * step)
                i, one, two = index[f, a, n], low[f, a, n], high[f, a, n]
                z = 0.0
                for c in range(spans[f, a, 0], spans[f, a, 1]):
                    at = (mean - lams[c % cells]) * scale + reach / step
                    at = 0.0 if at < 0.0 else at
                    at = np.float64(last) if at > last else at
                    y = min(int(at), last - 1)
                    up = at - y
                    table = tables[table_of[a], c // cells, n]
                    here = one * table[y, i] + two * table[y, i + 1]
                    next_ = one * table[y + 1, i] + two * table[y + 1, i + 1]
                    z += weights[f, a, c] * ((1.0 - up) * here + up * next_)
                collected += z
                total += mean - z
                payoffs[f, a, n + 1] = total
        sums[f] = collected


@njit(**_FAST)
def _smooth_totals(
    means: NDArray[np.float64],
    sds: NDArray[np.float64],
    index: NDArray[np.int16],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    tables: NDArray,
    table_of: NDArray[np.int64],
    lams: NDArray[np.float64],
    steps: NDArray[np.float64],
    reach: float,
    counts: NDArray[np.int32],
    totals: NDArray,
) -> None:
    futures, arms, _ = means.shape
    cells, blocks, last = len(lams), tables.shape[1], tables.shape[3] - 1
    for f in range(futures):
        of_sd = f if len(sds) > 1 else 0
        for a in range(arms):
            step = steps[table_of[a]]
            for c in range(cells * blocks):
                totals[f, a, c] = 0.0
            for n in range(counts[f, a]):
                mean, scale = means[f, a, n], 1.0 / (sds[of_sd, a, n] * step)
                i, one, two = index[f, a, n], low[f, a, n], high[f, a, n]
                for c in range(cells):
                    at = (mean - lams[c]) * scale + reach / step
                    at = 0.0 if at < 0.0 else at
                    at = np.float64(last) if at > last else at
                    y = min(int(at), last - 1)
                    up = at - y
                    for block in range(blocks):
                        table = tables[table_of[a], block, n]
                        here = one * table[y, i] + two * table[y, i + 1]
                        next_ = one * table[y + 1, i] + two * table[y + 1, i + 1]
                        totals[f, a, block * cells + c] += (1.0 - up) * here + up * next_


def smooth_payoffs(
    paths: tuple[NDArray, ...],
    tables: NDArray,
    table_of: NDArray,
    lams: NDArray,
    steps: NDArray,
    reach: float,
    weights: NDArray,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(cumulative payoffs [S, K, T+1], sum of all Z [S]) of arms with any rewards.

    paths: means [S, K, T+1], sds [S or 1, K, T+1], and the innovations [S, K, T], each two
    neighbouring entries of a row of the tables (the first's number, and the factor of either).
    tables [P, blocks, T, X, J] from :mod:`one_armed`, their steps [P]; lams [G].
    """
    futures, arms, size = paths[0].shape
    payoffs, sums = np.empty((futures, arms, size)), np.empty(futures)
    grid = (tables, table_of, lams, steps, reach)
    _smooth_payoffs(*paths, *grid, weights, _spans(weights), payoffs, sums)
    return payoffs, sums


def smooth_totals(
    paths: tuple[NDArray, ...],
    tables: NDArray,
    table_of: NDArray,
    lams: NDArray,
    steps: NDArray,
    reach: float,
    counts: NDArray,
) -> NDArray:
    """[S, K, C]: what each column collects over the first ``counts`` [S, K] pulls of each arm."""
    futures, arms, _ = paths[0].shape
    totals = np.empty((futures, arms, len(lams) * tables.shape[1]), tables.dtype)
    grid = (tables, table_of, lams, steps, reach)
    _smooth_totals(*paths, *grid, np.asarray(counts, np.int32), totals)
    return totals


@njit(**KERNEL)
def _binary_hinge_paths(
    rewards: NDArray,
    tables: NDArray,
    table_of: NDArray[np.int64],
    nodes: NDArray[np.float64],
    options: NDArray[np.float64],
    paths: NDArray[np.float64],
) -> None:
    futures, arms, kinds = options.shape
    last = paths.shape[3] - 1
    for f in range(futures):
        for a in range(arms):
            table = tables[table_of[a]]
            for k in range(kinds):
                option = options[f, a, k]
                i = 0
                while i < len(nodes) - 2 and nodes[i + 1] <= option:
                    i += 1
                up = (option - nodes[i]) / (nodes[i + 1] - nodes[i])
                s = 0
                for n in range(last + 1):
                    row = table[n * (n + 1) // 2 + s]
                    paths[f, k, a, n] = (1.0 - up) * row[i] + up * row[i + 1]
                    if n < last:
                        s += int(rewards[f, a, n])


def binary_hinge_paths(
    rewards: NDArray,
    tables: NDArray,
    table_of: NDArray,
    nodes: NDArray,
    options: NDArray,
    last: int,
) -> NDArray[np.float64]:
    """[S, kinds, K, last + 1]: E[(mu_hat_{a,last} - option)+] along each arm's own rewards.

    options [S, K, kinds] know the other arms only; between nodes the tables of
    :func:`one_armed.binary_hinges` are joined by straight lines, which keeps the martingale.
    """
    futures, arms, kinds = options.shape
    paths = np.empty((futures, kinds, arms, last + 1))
    _binary_hinge_paths(rewards, tables, table_of, nodes, options, paths)
    return paths


@njit(**KERNEL)
def _leave_out(cdfs: NDArray[np.float64], products: NDArray[np.float64]) -> None:
    futures, arms, edges = cdfs.shape
    for f in range(futures):
        for e in range(edges):
            before = 1.0
            for a in range(arms):
                products[f, a, e] = before
                before *= cdfs[f, a, e]
            after = 1.0
            for a in range(arms - 1, -1, -1):
                products[f, a, e] *= after
                after *= cdfs[f, a, e]


def leave_out_products(cdfs: NDArray[np.float64]) -> NDArray[np.float64]:
    """[S, K, E] -> [S, K, E]: for each arm the product over all the others."""
    cdfs = np.ascontiguousarray(cdfs, np.float64)
    products = np.empty_like(cdfs)
    _leave_out(cdfs, products)
    return products


@njit(**KERNEL)
def _solve(
    payoffs: NDArray[np.float64],
    cells: NDArray,
    marks: NDArray[np.int64],
    least: NDArray[np.float64],
    values: NDArray[np.float64],
    counts: NDArray[np.int32],
) -> None:
    futures, arms, size = payoffs.shape
    stride = row_stride(size - 1)
    for f in range(futures):
        for a in range(arms):
            start = a * stride + PAD
            lowest = np.inf
            for n in range(size):
                cells[start + n] = payoffs[f, a, n]
                if n > 0:
                    step = payoffs[f, a, n] - payoffs[f, a, n - 1]
                    lowest = step if step < lowest else lowest
            least[a] = lowest
        allocation.solve(cells, marks, least, arms, size - 1, size - 1, counts[f])
        total = 0.0
        for a in range(arms):
            total += payoffs[f, a, counts[f, a]]
        values[f] = total


def solve_payoffs(
    payoffs: NDArray[np.float64], dtype: type = np.float64
) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Best allocations of T pulls: values [S] and counts [S, K]."""
    futures, arms, size = payoffs.shape
    cells, marks, least = allocation.workspace(arms, size - 1, dtype)
    values, counts = np.empty(futures), np.empty((futures, arms), np.int32)
    _solve(payoffs, cells, marks, least, values, counts)
    return values, counts
