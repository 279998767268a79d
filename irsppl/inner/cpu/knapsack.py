"""Knapsacks of pulls for batches of problems: compiled counterparts of ``irsppl.inner.knapsack``.

All three fill tables over what is left of, or already taken from, the money (and the periods).
A flag ``bounded`` adds the axis of periods; without it the table has one row.

* Constant payoffs: arms enter one by one, ``F[t, m] = max(F[t, m], F[t - 1, m - c] + v)`` in place
  with t rising, O(K P M).  Beside F the last arm of the solution is kept, which is enough to read
  the solution off.  An arm no cheaper and no better than another is left out.  With much money and
  no limit of periods most of it surely goes to the arm b that pays best for its money: of c_b
  pulls of other arms some cost together a multiple of c_b (two of the first partial sums leave the
  same rest), and that money is better spent on b.  So fewer than c_b pulls are not of b, and the
  table need only reach over what those can cost.
* Groups: one sup-convolution per arm, ``F_a[t, m] = max_n F_{a-1}[t - n, m - n c_a] + S[a, n]``.
  A pull moves by a fixed distance in the flat table, so one loop serves both shapes.  The first
  arm needs no convolution, the last one the final cell only, and counts that another arm would
  surely pay better are left out: with k = floor(n c_a / c_b) pulls of b in place of n pulls of a
  (at most n where periods are bounded), a count with ``S[a, n] < k min_step_b`` is never optimal.
  Where periods are bounded, the problems with one limit only, money or periods, come first: a
  solution that keeps the other limit as well is the solution, by the rule for ties too.
* Feedback: backward over money spent, and over periods where they are bounded.

Ties are those of ``irsppl.inner.knapsack``.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from irsppl.inner.arrays import Floats, Ints
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.rng import KERNEL

SHIFTS: Final = 8  # that the convolution handles in one pass

# Guard cells hold minus infinity, so of the fast-math flags only those that let a conditional
# become a vector maximum are set.
_MAXPLUS: Final = {**KERNEL, "fastmath": {"nnan", "nsz"}}


# --- constant payoffs


@njit(**KERNEL)
def _useful(values: NDArray, costs: Ints, money: int, arm: int) -> bool:
    """Whether some solution may need ``arm``: it pays, is payable, and no arm replaces it."""
    if values[arm] <= 0 or costs[arm] > money:
        return False
    for b in range(values.size):
        better = values[b] > values[arm] or (values[b] == values[arm] and b < arm)
        if better and costs[b] <= costs[arm]:
            return False
    return True


@njit(**KERNEL)
def _surely(values: NDArray, costs: Ints, money: int) -> tuple[int, int]:
    """(arm, n): the arm that pays best for its money, and pulls of it that every solution has.

    (0, 0) where two arms share that place: then solutions differ, and ties are settled by the
    table.
    """
    first, dearest, tied = -1, 0, False
    for a in range(values.size):
        if not _useful(values, costs, money, a):
            continue
        dearest = max(dearest, costs[a])
        if first >= 0:
            ours, theirs = values[a] * costs[first], values[first] * costs[a]
            tied = (tied and not ours > theirs) or ours == theirs
        if first < 0 or values[a] * costs[first] > values[first] * costs[a]:
            first = a
    if first < 0 or tied:
        return 0, 0
    return first, max(money - (costs[first] - 1) * dearest, 0) // costs[first]


@njit(**KERNEL)
def _add_constant(above: NDArray, row: NDArray, choice: NDArray, value: float, arm: int) -> None:
    """``row[i] = max(row[i], above[i] + value)``; ``choice[i] = arm`` where that is larger."""
    for i in range(row.size):
        old, candidate = row[i], above[i] + value
        better = candidate > old
        # Stored in any case: a conditional store would not be vectorised.
        row[i] = candidate if better else old
        choice[i] = arm if better else choice[i]


@njit(**KERNEL)
def constant_batch(
    values: NDArray,
    costs: Ints,
    money: Ints,
    periods: Ints,
    bounded: bool,
    best: NDArray,
    choice: NDArray[np.int16],
    out: NDArray,
    pulls: NDArray[np.int32],
) -> None:
    num_problems, num_arms = values.shape
    for p in range(num_problems):
        limit, rows = money[p], periods[p] if bounded else 0
        sure, many = (0, 0) if bounded else _surely(values[p], costs, limit)
        limit -= many * costs[sure]
        best[: rows + 1, : limit + 1] = 0
        choice[: rows + 1, : limit + 1] = -1
        for a in range(num_arms):
            if not _useful(values[p], costs, money[p], a) or costs[a] > limit:
                continue
            c, v, arm = costs[a], values[p, a], np.int16(a)
            if bounded:
                for t in range(1, rows + 1):
                    _add_constant(
                        best[t - 1, : limit + 1 - c],
                        best[t, c : limit + 1],
                        choice[t, c : limit + 1],
                        v,
                        arm,
                    )
            else:
                # In place with money rising: a cell that already holds pulls of a gets one more.
                for m in range(c, limit + 1):
                    candidate = best[0, m - c] + v
                    if candidate > best[0, m]:
                        best[0, m] = candidate
                        choice[0, m] = arm
        t, m = rows, limit
        out[p] = best[t, m] + many * values[p, sure] if many > 0 else best[t, m]
        for a in range(num_arms):
            pulls[p, a] = 0
        pulls[p, sure] = many
        while choice[t, m] >= 0:
            a = choice[t, m]
            pulls[p, a] += 1
            m -= costs[a]
            t -= 1 if bounded else 0


def constant(
    values: NDArray, costs: Ints, money: Ints, periods: Ints, cells: int, size: int, bounded: bool
) -> tuple[NDArray, NDArray[np.int32]]:
    """values [S, K], money [S] up to ``cells``, periods [S] up to ``size``: best [S], pulls."""
    shape = (size + 1 if bounded else 1, cells + 1)
    best, choice = np.empty(shape, values.dtype), np.empty(shape, np.int16)
    out = np.empty(len(values), values.dtype)
    pulls = np.empty(values.shape, np.int32)
    constant_batch(values, costs, money, periods, bounded, best, choice, out, pulls)
    return out, pulls


# --- groups


@njit(**_MAXPLUS)
def _convolve(
    table: NDArray, x: int, z: int, step: int, cost: int, payoffs: NDArray, most: int, money: int
) -> None:
    """``z[m] = max_n x[m - n step] + payoffs[n]``, m = 0 .. money, n = 0 .. most.

    ``x`` and ``z`` are offsets in the flat ``table``; ``step`` is how far a pull moves there (its
    cost, and a row where periods are bounded) and ``most * cost <= money``.  The guard cells before
    each row stand in for money that there is not.
    """
    for m in range(money + 1):
        table[z + m] = -np.inf
    for n in range(0, most + 1, 8):
        # Eight shifts per pass, so that z is loaded and stored once for eight candidates; the last
        # one is repeated where there are no more.
        n1, n2, n3 = min(n + 1, most), min(n + 2, most), min(n + 3, most)
        n4, n5, n6 = min(n + 4, most), min(n + 5, most), min(n + 6, most)
        n7 = min(n + 7, most)
        y0, y1, y2, y3 = payoffs[n], payoffs[n1], payoffs[n2], payoffs[n3]
        y4, y5, y6, y7 = payoffs[n4], payoffs[n5], payoffs[n6], payoffs[n7]
        low = n * cost
        count = money + 1 - low
        # Slices, whose indices are plainly not negative: numba's wrap-around of negative ones would
        # keep the loop from being vectorised.
        begin = x + low
        x0 = table[begin - n * step : begin - n * step + count]
        x1 = table[begin - n1 * step : begin - n1 * step + count]
        x2 = table[begin - n2 * step : begin - n2 * step + count]
        x3 = table[begin - n3 * step : begin - n3 * step + count]
        x4 = table[begin - n4 * step : begin - n4 * step + count]
        x5 = table[begin - n5 * step : begin - n5 * step + count]
        x6 = table[begin - n6 * step : begin - n6 * step + count]
        x7 = table[begin - n7 * step : begin - n7 * step + count]
        zs = table[z + low : z + low + count]
        for i in range(count):
            v0, v1, v2, v3 = x0[i] + y0, x1[i] + y1, x2[i] + y2, x3[i] + y3
            v4, v5, v6, v7 = x4[i] + y4, x5[i] + y5, x6[i] + y6, x7[i] + y7
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
def _caps(
    payoffs: NDArray,
    costs: Ints,
    money: int,
    periods: int,
    bounded: bool,
    caps: Ints,
    least: Floats,
) -> None:
    """Largest count of each arm that an optimal allocation may have."""
    num_arms, columns = payoffs.shape
    slack = 4.0 * np.float64(np.finfo(payoffs.dtype).eps)
    # The two arms whose worst pull pays best for its money: each arm is compared with the best of
    # the others.
    first, second = -1, -1
    for a in range(num_arms):
        fits = money // costs[a]
        fits = min(fits, periods) if bounded else fits
        caps[a] = min(fits, columns - 1)
        least[a] = np.inf
        for n in range(caps[a]):
            step = np.float64(payoffs[a, n + 1]) - np.float64(payoffs[a, n])
            least[a] = step if step < least[a] else least[a]
        # An arm can stand in for others only if it never runs out of counts.
        if caps[a] < fits or caps[a] == 0 or least[a] <= 0:
            continue
        if first < 0 or least[a] * costs[first] > least[first] * costs[a]:
            first, second = a, first
        elif second < 0 or least[a] * costs[second] > least[second] * costs[a]:
            second = a
    for a in range(num_arms):
        b = second if a == first else first
        n = caps[a]
        while n > 0:
            pays = np.float64(payoffs[a, n])
            if pays > 0:
                if b < 0:
                    break
                instead = n * costs[a] // costs[b]
                instead = min(instead, n) if bounded else instead
                others = instead * least[b]
                if pays >= others - slack * (pays + others):
                    break
            n -= 1
        caps[a] = n


@njit(**KERNEL)
def _solve_groups(
    payoffs: NDArray,
    costs: Ints,
    money: int,
    periods: int,
    bounded: bool,
    table: NDArray,
    shape: tuple[int, int, int],
    work: tuple[Ints, Ints, Floats],
    pulls: NDArray[np.int32],
) -> float:
    """Solve one problem; writes ``pulls`` and returns the value.

    ``shape``: cells from row to row of a table, guard cells before each row, cells from table to
    table.
    """
    stride, guard, area = shape
    caps, where, least = work
    num_arms = payoffs.shape[0]
    _caps(payoffs, costs, money, periods, bounded, caps, least)
    last = -1
    for a in range(num_arms):
        pulls[a] = 0
        if caps[a] > 0:
            last = a
    if last < 0:
        return 0.0
    rows = periods if bounded else 0
    down = stride if bounded else 0
    # where[a]: offset of the table of what the arms before a earn; -1: nothing, all zero.
    where[0] = -1
    for a in range(last):
        x, c, row = where[a], costs[a], payoffs[a]
        where[a + 1] = x
        if caps[a] == 0:
            continue
        z = a * area + guard
        where[a + 1] = z
        for t in range(rows + 1):
            most = min(caps[a], t) if bounded else caps[a]
            if x >= 0:
                _convolve(table, x + t * down, z + t * down, down + c, c, row, most, money)
                continue
            # The first arm alone takes its best count among those that fit.
            value, n, edge = row[0], 0, c
            for m in range(money + 1):
                if m == edge and n < most:
                    n += 1
                    edge += c
                    value = row[n] if row[n] > value else value
                table[z + t * down + m] = value

    # Settle the arms from the last to the first.
    best = 0.0
    t, m = rows, money
    for a in range(last, -1, -1):
        x, c = where[a], costs[a]
        most = min(caps[a], m // c)
        most = min(most, t) if bounded else most
        value, chosen = -np.inf, 0
        for n in range(most + 1):
            v = payoffs[a, n]
            if x >= 0:
                v += table[x + (t - n) * down + m - n * c]
            if v > value:
                value, chosen = np.float64(v), n
        if a == last:
            best = value
        pulls[a] = chosen
        m -= chosen * c
        t -= chosen if bounded else 0
    return best


@njit(**KERNEL)
def groups_batch(
    payoffs: NDArray,
    costs: Ints,
    ones: Ints,
    money: Ints,
    periods: Ints,
    bounded: bool,
    table: NDArray,
    shape: tuple[int, int, int],
    work: tuple[Ints, Ints, Floats],
    out: NDArray,
    pulls: NDArray[np.int32],
) -> None:
    for p in range(payoffs.shape[0]):
        given, found = payoffs[p], pulls[p]
        out[p] = _solve_groups(given, costs, money[p], 0, False, table, shape, work, found)
        if not bounded or _total(found, ones) <= periods[p]:
            continue
        # Too many pulls. Next, periods without money: a knapsack of pulls that cost one each.
        out[p] = _solve_groups(given, ones, periods[p], 0, False, table, shape, work, found)
        if _total(found, costs) <= money[p]:
            continue
        out[p] = _solve_groups(given, costs, money[p], periods[p], True, table, shape, work, found)


@njit(**KERNEL)
def _total(pulls: NDArray[np.int32], costs: Ints) -> int:
    total = 0
    for a in range(pulls.size):
        total += pulls[a] * costs[a]
    return total


def groups(
    payoffs: NDArray, costs: Ints, money: Ints, periods: Ints, cells: int, size: int, bounded: bool
) -> tuple[NDArray, NDArray[np.int32]]:
    """payoffs [S, K, N+1], money [S] up to ``cells``, periods [S] up to ``size``: best [S], pulls.

    Periods are at most money over the least cost.  Takes K - 1 tables of (size + 1) (cells + 1)
    cells, (cells + 1) if periods are not bounded.
    """
    num_problems, num_arms, _ = payoffs.shape
    payable = costs[costs <= cells]
    guard = min((SHIFTS - 1) * int(payable.max(initial=0)), cells)
    # A multiple of 16 cells keeps rows aligned to cache lines.
    stride = (guard + cells + 1 + 15) // 16 * 16
    area = stride * (size + 1 if bounded else 1)
    table = np.full(max(num_arms - 1, 1) * area, -np.inf, payoffs.dtype)
    marks = np.zeros((2, num_arms), np.int64)
    work = marks[0], marks[1], np.zeros(num_arms)
    out = np.empty(num_problems, payoffs.dtype)
    pulls = np.empty((num_problems, num_arms), np.int32)
    shape, ones = (stride, guard, area), np.ones_like(costs)
    groups_batch(payoffs, costs, ones, money, periods, bounded, table, shape, work, out, pulls)
    return out, pulls


# --- feedback


@njit(**KERNEL)
def _add_feedback(pays: NDArray, later: NDArray, row: NDArray, action: NDArray, arm: int) -> None:
    """``row[i] = max(row[i], pays[i] + later[i])``; ``action[i] = arm`` where that is larger."""
    for i in range(row.size):
        old, candidate = row[i], pays[i] + later[i]
        better = candidate > old
        row[i] = candidate if better else old
        action[i] = arm if better else action[i]


@njit(**KERNEL)
def _feedback_batch(
    payoff: NDArray,
    costs: Ints,
    money: Ints,
    periods: Ints,
    bounded: bool,
    cheapest: int,
    value: NDArray,
    action: NDArray[np.int16],
    out: NDArray,
    sequence: NDArray[np.int32],
) -> None:
    # payoff [S, K, 1 or size, cells + 1]: a single row serves all periods.
    num_problems, num_arms, payoff_rows, _ = payoff.shape
    for p in range(num_problems):
        limit, rows = money[p], periods[p]
        if bounded:
            value[rows % 2, : limit + 1] = 0
            for t in range(rows - 1, -1, -1):
                # After t pulls at least t of the cheapest cost are spent.
                low = min(t * cheapest, limit + 1)
                now, after = value[t % 2], value[(t + 1) % 2]
                now[low : limit + 1] = 0
                action[t, low : limit + 1] = -1
                for a in range(num_arms):
                    high = limit + 1 - costs[a]
                    if high > low:
                        _add_feedback(
                            payoff[p, a, t if payoff_rows > 1 else 0, low:high],
                            after[low + costs[a] : limit + 1],
                            now[low:high],
                            action[t, low:high],
                            np.int16(a),
                        )
        else:
            for s in range(limit, -1, -1):
                best, arm = 0.0, -1
                for a in range(num_arms):
                    if s + costs[a] <= limit:
                        candidate = payoff[p, a, 0, s] + value[0, s + costs[a]]
                        if candidate > best:
                            best, arm = np.float64(candidate), a
                value[0, s], action[0, s] = best, arm
        out[p] = value[0, 0]
        sequence[p] = -1
        spent = 0
        for t in range(rows):
            arm = action[t if bounded else 0, spent]
            if arm < 0:
                break
            sequence[p, t] = arm
            spent += costs[arm]


def feedback(
    payoff: NDArray, costs: Ints, money: Ints, periods: Ints, cells: int, size: int, bounded: bool
) -> tuple[NDArray, NDArray[np.int32]]:
    """payoff [S, K, (size,) cells + 1], money and periods [S]: best [S], sequences [S, size]."""
    if payoff.ndim == 3:
        payoff = payoff[:, :, None, :]
    # In double precision whatever the payoffs are: thousands of singles, added one by one, end up
    # below their sum by more than the bound's standard error.
    value = np.zeros((2, cells + 1))
    action = np.empty((size if bounded else 1, cells + 1), np.int16)
    out = np.empty(len(payoff))
    sequence = np.empty((len(payoff), size), np.int32)
    _feedback_batch(
        payoff, costs, money, periods, bounded, int(costs.min()), value, action, out, sequence
    )
    return out, sequence


SOLVERS: Final = {"constant": constant, "groups": groups, "feedback": feedback}
