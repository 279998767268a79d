"""Inner problems of leave-one-out penalties, for batches of futures.

The pull that shows reward number n of an arm's row is charged ``Z[a, n] = innovation x slope``: the
innovation is what the reward changes, of mean zero given the arm's own earlier ones, and the slope
a sum over columns, ``weights[a, c] x entry(n, state; c)``, with weights that know the other arms'
rewards only. Columns are blocks of cells: options lam_g, once for each horizon that is planned for.

Two kinds of rows, :class:`Binary` and :class:`Smooth`, answer ``_cursor`` (where in its tables a
reward stands) and ``_entry``; what is summed over them is the same.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload
from numpy.typing import NDArray

from irsppl.inner.cpu import allocation
from irsppl.inner.cpu.allocation import PAD, row_stride
from irsppl.inner.cpu.rng import KERNEL

__all__ = [
    "Binary",
    "Smooth",
    "binary_hinge_paths",
    "charges",
    "leave_out_products",
    "solve_payoffs",
    "totals",
]

_FAST = {**KERNEL, "fastmath": {"reassoc", "contract", "nsz", "nnan"}}
_INLINE = {name: value for name, value in _FAST.items() if name != "cache"} | {"forceinline": True}


class Binary(NamedTuple):
    """Rewards 0 or 1: each row of a table is a state (n, s), see :mod:`one_armed`.

    state [S, K, W]: rows; innovation [S, K, W]; tables [P, rows, C], table_of [K].
    """

    state: NDArray[np.int32]
    innovation: NDArray[np.float64]
    tables: NDArray
    table_of: NDArray[np.int64]


class Smooth(NamedTuple):
    """Any rewards: tables over (posterior mean - option) / posterior standard deviation.

    means [S, K, W+1], sds [S or 1, K, W+1]; the innovations [S, K, W], each two neighbouring
    entries of a row of the tables (the first's number, and the factor of either); tables
    [P, blocks, W, X, J] from :mod:`one_armed` with their steps [P]; options [K, G].
    """

    means: NDArray[np.float64]
    sds: NDArray[np.float64]
    index: NDArray[np.int16]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    tables: NDArray
    table_of: NDArray[np.int64]
    steps: NDArray[np.float64]
    reach: float
    options: NDArray[np.float64]


def _cursor(rows: Any, f: int, a: int, n: int) -> Any:
    """(factor of all entries, what ``_entry`` needs) of reward n of arm a in future f."""
    raise TypeError("compiled code only")


def _entry(rows: Any, cursor: Any, block: int, g: int) -> float:
    """The table's number for cell g of a block."""
    raise TypeError("compiled code only")


def _implements(verb: Any, kind: type) -> Any:
    def register(code: Any) -> Any:
        def choose(*types: Any) -> Any:
            return code if getattr(types[0], "instance_class", None) is kind else None

        overload(verb, jit_options=_INLINE, strict=False)(choose)
        return code

    return register


@_implements(_cursor, Binary)
def _(rows: Any, f: int, a: int, n: int) -> Any:
    return rows.innovation[f, a, n], (rows.table_of[a], rows.state[f, a, n])


@_implements(_entry, Binary)
def _(rows: Any, cursor: Any, block: int, g: int) -> Any:
    return rows.tables[cursor[0], cursor[1], block, g]


@_implements(_cursor, Smooth)
def _(rows: Any, f: int, a: int, n: int) -> Any:
    p = rows.table_of[a]
    scale = 1.0 / (rows.sds[f if len(rows.sds) > 1 else 0, a, n] * rows.steps[p])
    # at = (mean - option) / sd in steps from the left end of the grid
    start = rows.means[f, a, n] * scale + rows.reach / rows.steps[p]
    own = (rows.index[f, a, n], rows.low[f, a, n], rows.high[f, a, n])
    return 1.0, (p, a, n, start, scale, own)


@_implements(_entry, Smooth)
def _(rows: Any, cursor: Any, block: int, g: int) -> Any:
    p, a, n, start, scale, (i, low, high) = cursor
    last = rows.tables.shape[3] - 1
    at = start - rows.options[a, g] * scale
    at = 0.0 if at < 0.0 else at
    at = np.float64(last) if at > last else at
    y = min(int(at), last - 1)
    up = at - y
    table = rows.tables[p, block, n]
    here = low * table[y, i] + high * table[y, i + 1]
    next_ = low * table[y + 1, i] + high * table[y + 1, i + 1]
    return (1.0 - up) * here + up * next_


@njit(**_FAST)
def _charges(
    rows: Any, weights: NDArray, spans: NDArray[np.int64], charged: NDArray[np.float64]
) -> None:
    futures, arms, blocks = weights.shape[:3]
    for f in range(futures):
        for a in range(arms):
            for n in range(charged.shape[2]):
                factor, cursor = _cursor(rows, f, a, n)
                total = weights.dtype.type(0)
                for block in range(blocks):
                    own = weights[f, a, block]
                    for g in range(spans[f, a, block, 0], spans[f, a, block, 1]):
                        total += own[g] * _entry(rows, cursor, block, g)
                charged[f, a, n] = factor * total


def charges(rows: Binary | Smooth, weights: NDArray) -> NDArray[np.float64]:
    """Z [S, K, W] along each arm's row; weights [S, K, blocks, G]."""
    inside = rows.innovation if isinstance(rows, Binary) else rows.low
    charged = np.empty(inside.shape)
    _charges(rows, weights, _spans(weights), charged)
    return charged


def _spans(weights: NDArray) -> NDArray[np.int64]:
    """[..., 2]: the cells outside which all weights are zero."""
    used = weights != 0
    last = weights.shape[-1] - np.argmax(used[..., ::-1], axis=-1)
    first = np.argmax(used, axis=-1)
    some = used.any(axis=-1)
    return np.stack([np.where(some, first, 0), np.where(some, last, 0)], axis=-1).astype(np.int64)


@njit(**_FAST)
def _totals(rows: Any, first: NDArray[np.int32], last: NDArray[np.int32], totals: NDArray) -> None:
    futures, arms, blocks, cells = totals.shape
    for f in range(futures):
        for a in range(arms):
            out = totals[f, a]
            for block in range(blocks):
                for g in range(cells):
                    out[block, g] = 0.0
            for n in range(first[f, a], last[f, a]):
                factor, cursor = _cursor(rows, f, a, n)
                for block in range(blocks):
                    for g in range(cells):
                        out[block, g] += factor * _entry(rows, cursor, block, g)


def totals(rows: Binary | Smooth, first: NDArray, last: NDArray, shape: tuple[int, int]) -> NDArray:
    """[S, K, blocks, G]: what each column collects over rewards first .. last - 1 [S, K]."""
    found = np.empty((*first.shape, *shape), rows.tables.dtype)
    _totals(rows, first.astype(np.int32), last.astype(np.int32), found)
    return found


@njit(**KERNEL)
def _binary_hinge_paths(
    state: NDArray[np.int32],
    tables: NDArray,
    table_of: NDArray[np.int64],
    nodes: NDArray[np.float64],
    options: NDArray[np.float64],
    paths: NDArray[np.float64],
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
) -> NDArray[np.float64]:
    """[S, kinds, K, last + 1]: E[(mu_hat_{a,last} - option)+] along each arm's own rewards.

    state [S, K, > last]: rows of the tables; options [S, K, kinds] know the other arms only;
    between nodes [K, N] the tables of :func:`one_armed.binary_hinges` are joined by straight lines,
    which keeps the martingale.
    """
    futures, arms, kinds = options.shape
    paths = np.empty((futures, kinds, arms, last + 1))
    _binary_hinge_paths(state, tables, table_of, nodes, options, paths)
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
    totals: NDArray[np.int64],
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
            cells[start] = payoffs[f, a, 0]
            for n in range(1, totals[f] + 1):
                cells[start + n] = payoffs[f, a, n]
                step = payoffs[f, a, n] - payoffs[f, a, n - 1]
                lowest = step if step < lowest else lowest
            least[a] = lowest
        allocation.solve(cells, marks, least, arms, size - 1, totals[f], counts[f])
        total = 0.0
        for a in range(arms):
            total += payoffs[f, a, counts[f, a]]
        values[f] = total


def solve_payoffs(
    payoffs: NDArray[np.float64], pulls: NDArray | int, dtype: type = np.float64
) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Best allocations of ``pulls`` (one number or [S]): values [S] and counts [S, K]."""
    futures, arms, size = payoffs.shape
    each = np.ascontiguousarray(np.broadcast_to(np.asarray(pulls, np.int64), (futures,)))
    cells, marks, least = allocation.workspace(arms, size - 1, dtype)
    values, counts = np.empty(futures), np.empty((futures, arms), np.int32)
    _solve(payoffs, each, cells, marks, least, values, counts)
    return values, counts
