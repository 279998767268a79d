"""What pulls cost: nothing, or money of which there is so much."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irsppl.budgets import Purse as Budget
from irsppl.engine import verbs
from irsppl.engine.limits import Given
from irsppl.engine.situation import Situation
from irsppl.engine.verbs import implements
from irsppl.inner.arrays import Floats, Ints, Singles
from irsppl.inner.cpu import allocation
from irsppl.inner.cpu.allocation import PAD
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.knapsack import SHIFTS, constant_batch, groups_batch
from irsppl.inner.cpu.rng import KERNEL


class Free(NamedTuple):
    """Pulls cost nothing."""

    zero: int


class Purse(NamedTuple):
    """Costs and money in whole units, and the knapsacks' work arrays.

    The knapsacks count in cells of ``step`` units, rounded down (see `irsppl.budgets.Purse`).
    """

    costs: Ints  # [K]
    grid_costs: Ints  # [K]
    ones: Ints  # [K]
    full: int  # money at the start
    step: int
    cheapest: int  # least cost, in units
    least_cells: int  # and in cells
    most_cells: int  # cost of the dearest, in cells
    capped: bool  # whether periods can run out before the money does
    money: Ints  # [1]
    left: Ints  # [2, 1]: money in cells, periods, for the solvers
    values: Floats  # [1, K]
    best: Floats  # [rows, cells + 1]
    choice: NDArray[np.int16]
    payoffs: Singles  # [1, K, N + 1]
    table: Singles
    shape: tuple[int, int, int]
    work: tuple[Ints, Ints, Floats]
    out: Floats  # [1]
    out_groups: Singles  # [1]
    pulls: NDArray[np.int32]  # [1, K]


def purse(limit: Budget, state: Situation, rule: Any) -> Callable[[Given], Purse]:
    return lambda given: _purse(limit, state.remaining, rule.groups)


def _purse(limit: Budget, periods: int, groups: bool) -> Purse:
    """A purse for at most ``periods`` pulls; ``groups``: for V-Zero."""
    money, own = limit.account()
    step, cells, capped, costs = limit.step, limit.cells, limit.capped, np.array(own, np.int64)
    num_arms = costs.size
    grid = np.minimum(costs // step, cells + 1)
    rows = periods + 1 if capped else 1
    payable = grid[grid <= cells]
    guard = min((SHIFTS - 1) * int(payable.max(initial=0)), cells)
    stride = (guard + cells + 1 + 15) // 16 * 16
    area = stride * rows
    # The knapsack over periods alone may need a longer row than the money does.
    area = max(area, (guard + max(cells, periods) + 1 + 15) // 16 * 16)
    size = max(num_arms - 1, 1) * area if groups else 0
    return Purse(
        costs,
        grid,
        np.ones_like(costs),
        int(money),
        int(step),
        int(costs.min()),
        int(grid.min()),
        int(grid.max()),
        bool(capped),
        np.zeros(1, np.int64),
        np.zeros((2, 1), np.int64),
        np.zeros((1, num_arms)),
        np.zeros((rows, cells + 1)),
        np.zeros((rows, cells + 1), np.int16),
        np.zeros((1, num_arms, periods + 1 if groups else 1), np.float32),
        np.full(size, -np.inf, np.float32),
        (stride, guard, area),
        (np.zeros(num_arms, np.int64), np.zeros(num_arms, np.int64), np.zeros(num_arms)),
        np.zeros(1),
        np.zeros(1, np.float32),
        np.zeros((1, num_arms), np.int32),
    )


@implements(verbs.reset, Free)
def _(limit):
    pass


@implements(verbs.affordable, Free)
def _(purse, arm):
    return True


@implements(verbs.may_stop, Free)
def _(purse):
    return False


@implements(verbs.pay, Free)
def _(purse, arm, remaining):
    return remaining


@implements(verbs.purchases, Free)
def _(purse, arm, periods):
    return periods - 1


@implements(verbs.best_constant, Free)
def _(purse, scores, remaining):
    chosen = 0
    best = -np.inf
    for a in range(scores.size):
        if scores[a] > best:
            best = scores[a]
            chosen = a
    return chosen


@implements(verbs.best_groups, Free)
def _(purse, work, num_arms, periods):
    allocation.solve(
        work.cells, work.marks, work.least, num_arms, work.horizon, periods, work.counts
    )
    # Any arm with a pull would be a first action; the most pulled one makes it like TS for long
    # horizons (paper, Proposition on asymptotic behaviour).
    return verbs.most_pulled(work.counts)


@implements(verbs.reset, Purse)
def _(limit):
    limit.money[0] = limit.full


@implements(verbs.affordable, Purse)
def _(purse, arm):
    return purse.costs[arm] <= purse.money[0]


@implements(verbs.may_stop, Purse)
def _(purse):
    return True


@implements(verbs.pay, Purse)
def _(purse, arm, remaining):
    purse.money[0] -= purse.costs[arm]
    return min(remaining, purse.money[0] // purse.cheapest)


@implements(verbs.purchases, Purse)
def _(purse, arm, periods):
    return max(purse.money[0] - purse.costs[arm], 0) // purse.costs[arm]


@implements(verbs.price, Purse)
def _(purse, arm):
    return purse.costs[arm]


@implements(verbs.rich, Purse)
def _(purse, remaining):
    cells = purse.money[0] // purse.step
    if purse.capped and remaining < cells // purse.least_cells:
        return False
    # Fewer than c pulls are not of that arm (see `irsppl.inner.cpu.knapsack`), at least c are.
    return cells >= 2 * purse.most_cells * purse.most_cells


@njit(**KERNEL)
def _most_pulled(pulls: NDArray[np.int32]) -> int:
    """The arm with the most pulls; -1 where there are none."""
    chosen = verbs.most_pulled(pulls)
    return chosen if pulls[chosen] > 0 else -1


@implements(verbs.best_constant, Purse)
def _(purse, scores, remaining):
    purse.left[0, 0] = purse.money[0] // purse.step
    purse.left[1, 0] = remaining
    bounded = purse.capped and remaining < purse.left[0, 0] // purse.least_cells
    for a in range(scores.size):
        # On a coarse grid an arm might seem payable that is not.
        payable = purse.costs[a] <= purse.money[0]
        purse.values[0, a] = scores[a] if payable else -np.inf
    limits = (purse.grid_costs, purse.left[0], purse.left[1], bounded)
    constant_batch(purse.values, *limits, purse.best, purse.choice, purse.out, purse.pulls)
    return _most_pulled(purse.pulls[0])


@implements(verbs.best_groups, Purse)
def _(purse, work, num_arms, periods):
    stride = allocation.row_stride(work.horizon)
    for a in range(num_arms):
        most = min(purse.money[0] // purse.costs[a], periods)
        begin = a * stride + PAD
        for n in range(purse.payoffs.shape[2]):
            purse.payoffs[0, a, n] = work.cells[begin + n] if n <= most else -np.inf
    purse.left[0, 0] = purse.money[0] // purse.step
    purse.left[1, 0] = periods
    bounded = purse.capped and periods < purse.left[0, 0] // purse.least_cells
    limits = (purse.grid_costs, purse.ones, purse.left[0], purse.left[1], bounded)
    tables = (purse.table, purse.shape, purse.work)
    groups_batch(purse.payoffs, *limits, *tables, purse.out_groups, purse.pulls)
    return _most_pulled(purse.pulls[0])
