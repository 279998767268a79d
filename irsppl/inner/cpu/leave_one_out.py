"""Inner problems of leave-one-out penalties, for batches of futures.

The pull that shows reward number n of an arm's row is charged ``Z[a, n] = innovation x slope``: the
innovation is what the reward changes, of mean zero given the arm's own earlier ones, and the slope
a sum over columns, ``weights[a, c] x entry(n, state; c)``, with weights that know the other arms'
rewards only. Columns are blocks of cells: options lam_g, once for each horizon that is planned for.

All futures take reward n before any takes the next: what the tables hold of one n fits a cache,
which is most of the speed.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irsppl.inner.arrays import Floats, Ints
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.rng import KERNEL

_FAST = {**KERNEL, "fastmath": {"reassoc", "contract", "nsz", "nnan"}}


class Binary(NamedTuple):
    """Rewards 0 or 1: each row of a table is a state (n, s), see :mod:`one_armed`.

    state [S, K, W]: rows; innovation [S, K, W]; tables [P, rows, blocks, G], table_of [K].
    """

    state: NDArray[np.int32]
    innovation: NDArray
    tables: NDArray
    table_of: Ints


class Smooth(NamedTuple):
    """Any rewards: tables over (posterior mean - option) / posterior standard deviation.

    means [S, K, W+1], sds [S or 1, K, W+1]; the innovations [S, K, W], each two neighbouring
    entries of the tables (the first's number, and the factor of either); tables
    [P, W, J, blocks, X] from :mod:`one_armed` with their steps [P]; options [K, G].
    """

    means: Floats
    sds: Floats
    index: NDArray[np.int16]
    low: NDArray
    high: NDArray
    tables: NDArray
    table_of: Ints
    steps: Floats
    reach: float
    options: NDArray


@njit(**_FAST)
def _binary_charges(rows: Binary, tables: NDArray, weights: NDArray, charged: Floats) -> None:
    futures, arms, columns = weights.shape
    for n in range(charged.shape[2]):
        for f in range(futures):
            for a in range(arms):
                row, own = tables[rows.table_of[a], rows.state[f, a, n]], weights[f, a]
                total = weights.dtype.type(0)
                for c in range(columns):
                    total += own[c] * row[c]
                charged[f, a, n] = rows.innovation[f, a, n] * total


@njit(**_FAST)
def _smooth_charges(
    rows: Smooth,
    weights: NDArray,
    spans: Ints,
    at: NDArray[np.int32],
    ups: NDArray,
    charged: Floats,
) -> None:
    futures, arms, blocks = weights.shape[:3]
    number = weights.dtype.type
    last = rows.tables.shape[4] - 1
    for n in range(charged.shape[2]):
        for f in range(futures):
            for a in range(arms):
                p, i = rows.table_of[a], rows.index[f, a, n]
                scale = 1.0 / (rows.sds[f if len(rows.sds) > 1 else 0, a, n] * rows.steps[p])
                # (mean - option) / sd in steps from the left end of the grid
                start = number(rows.means[f, a, n] * scale + rows.reach / rows.steps[p])
                step = number(scale)
                options = rows.options[a]
                first, stop = spans[f, a, 0], spans[f, a, 1]
                for g in range(first, stop):
                    y = min(max(start - options[g] * step, number(0)), number(last))
                    at[g] = min(np.int32(y), last - 1)
                    ups[g] = y - number(at[g])
                low, high = number(0), number(0)
                for block in range(blocks):
                    own = weights[f, a, block]
                    here, there = rows.tables[p, n, i, block], rows.tables[p, n, i + 1, block]
                    for g in range(first, stop):
                        y, up = at[g], ups[g]
                        low += own[g] * (here[y] + up * (here[y + 1] - here[y]))
                        high += own[g] * (there[y] + up * (there[y + 1] - there[y]))
                charged[f, a, n] = rows.low[f, a, n] * low + rows.high[f, a, n] * high


def charges(rows: Binary | Smooth, weights: NDArray) -> Floats:
    """Z [S, K, W] along each arm's row; weights [S, K, blocks, G] in the tables' precision."""
    if isinstance(rows, Binary):
        charged = np.empty(rows.innovation.shape)
        flat = rows.tables.reshape(*rows.tables.shape[:2], -1)
        own = weights.reshape(*weights.shape[:2], -1)
        _binary_charges(rows, flat, own, charged)
        return charged
    charged, cells = np.empty(rows.low.shape), weights.shape[-1]
    work = np.empty(cells, np.int32), np.empty(cells, weights.dtype)
    _smooth_charges(rows, weights, _spans(weights), *work, charged)
    return charged


def _spans(weights: NDArray) -> Ints:
    """[S, K, 2]: the cells outside which the weights of all blocks are zero."""
    used = (weights != 0).any(axis=2)
    last = weights.shape[-1] - np.argmax(used[..., ::-1], axis=-1)
    first = np.argmax(used, axis=-1)
    some = used.any(axis=-1)
    return np.stack([np.where(some, first, 0), np.where(some, last, 0)], axis=-1).astype(np.int64)


@njit(**_FAST)
def _binary_totals(
    rows: Binary, first: NDArray[np.int32], last: NDArray[np.int32], totals: NDArray
) -> None:
    futures, arms, blocks, cells = totals.shape
    totals[:] = 0.0
    for n in range(rows.state.shape[2]):
        for f in range(futures):
            for a in range(arms):
                if first[f, a] <= n < last[f, a]:
                    row = rows.tables[rows.table_of[a], rows.state[f, a, n]]
                    innovation = rows.innovation[f, a, n]
                    for block in range(blocks):
                        for g in range(cells):
                            totals[f, a, block, g] += innovation * row[block, g]


@njit(**_FAST)
def _smooth_totals(
    rows: Smooth, first: NDArray[np.int32], last: NDArray[np.int32], totals: NDArray
) -> None:
    futures, arms, blocks, cells = totals.shape
    end = rows.tables.shape[4] - 1
    totals[:] = 0.0
    for n in range(rows.low.shape[2]):
        for f in range(futures):
            for a in range(arms):
                if first[f, a] <= n < last[f, a]:
                    p, i = rows.table_of[a], rows.index[f, a, n]
                    scale = 1.0 / (rows.sds[f if len(rows.sds) > 1 else 0, a, n] * rows.steps[p])
                    start = rows.means[f, a, n] * scale + rows.reach / rows.steps[p]
                    low, high = rows.low[f, a, n], rows.high[f, a, n]
                    here, there = rows.tables[p, n, i], rows.tables[p, n, i + 1]
                    for g in range(cells):
                        at = min(max(start - rows.options[a, g] * scale, 0.0), float(end))
                        y = min(int(at), end - 1)
                        up = at - y
                        for block in range(blocks):
                            own = low * here[block, y] + high * there[block, y]
                            more = low * here[block, y + 1] + high * there[block, y + 1]
                            totals[f, a, block, g] += own + up * (more - own)


def totals(rows: Binary | Smooth, first: NDArray, last: NDArray, shape: tuple[int, int]) -> NDArray:
    """[S, K, blocks, G]: what each column collects over rewards first .. last - 1 [S, K]."""
    found = np.empty((*first.shape, *shape), rows.tables.dtype)
    sum_up = _binary_totals if isinstance(rows, Binary) else _smooth_totals
    sum_up(rows, first.astype(np.int32), last.astype(np.int32), found)
    return found


@njit(**KERNEL)
def _binary_hinge_paths(
    state: NDArray[np.int32],
    tables: NDArray,
    table_of: Ints,
    nodes: Floats,
    options: Floats,
    paths: Floats,
) -> None:
    futures, arms, kinds = options.shape
    for f in range(futures):
        for a in range(arms):
            table, grid = tables[table_of[a]], nodes[a]
            for k in range(kinds):
                option = options[f, a, k]
                i = 0
                while i < len(grid) - 2 and grid[i + 1] <= option:
                    i += 1
                up = (option - grid[i]) / (grid[i + 1] - grid[i])
                for n in range(paths.shape[3]):
                    row = table[state[f, a, n]]
                    paths[f, k, a, n] = (1.0 - up) * row[i] + up * row[i + 1]


def binary_hinge_paths(
    state: NDArray, tables: NDArray, table_of: NDArray, nodes: NDArray, options: NDArray, last: int
) -> Floats:
    """[S, kinds, K, last + 1]: E[(mu_hat_{a,last} - option)+] along each arm's own rewards.

    state [S, K, > last]: rows of the tables; options [S, K, kinds] know the other arms only;
    between nodes [K, N] the tables of :func:`one_armed.binary_hinges` are joined by straight lines,
    which keeps the martingale.
    """
    futures, arms, kinds = options.shape
    paths = np.empty((futures, kinds, arms, last + 1))
    _binary_hinge_paths(state, tables, table_of, nodes, options, paths)
    return paths
