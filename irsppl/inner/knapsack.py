"""Knapsacks: how to spend `money` on pulls of arms with costs, given what the pulls pay.

Three problems, from the simplest payoffs to those that depend on the order of pulls. In all of
them costs are whole numbers `[K]` of at least 1 (see `irsppl.budgets`), `money` and `periods` limit
what is spent and the number of pulls, and stopping early is allowed, so no value is negative.
`cells >= money` and `size >= periods` are static; costs, money and periods are data and may be
traced. A payoff of -inf forbids a pull or a count. `bounded=False` says that money runs out before
periods do: the tables then have one axis (money) instead of two (periods, money), and `periods` is
not looked at.

The JAX solvers are for accelerators and traced code; on the CPU, batches go to numba kernels.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int


class Room(NamedTuple):
    """What there is to spend on pulls, and what they cost."""

    costs: Int[Array, " K"]
    money: Int[Array, ""]
    periods: Int[Array, ""]
    cells: int
    size: int
    bounded: bool = True  # False: money runs out before periods do


def knapsack_constant(
    values: Float[Array, " K"], room: Room
) -> tuple[Float[Array, ""], Int[Array, " K"]]:
    """max of sum_a n_a values[a] over affordable n, and n; every pull of an arm pays the same.

    O(K cells log cells), or O(K size cells) with bounded periods. Among optimal counts each arm,
    from the last to the first, takes the fewest.
    """
    _check(values.shape, (len(room.costs),), "values must be [K] = {want}, got {got}")
    (weights, left), cells = _weights(room), room.cells
    if room.bounded:
        return _constant_by_period(values, weights[:, 1], left, cells, room.size)

    # Shifts by 1, 2, 4, ... pulls, one after the other, reach every number of pulls.
    doublings = jnp.left_shift(1, jnp.arange(cells.bit_length()))

    def add_arm(best: Array, arm: tuple[Array, Array]) -> tuple[Array, Array]:
        value, weight = arm

        def double(out: Array, pulls: Array) -> tuple[Array, None]:
            moved = _shift(_pad(out), pulls * jnp.minimum(weight, (cells + 1) // pulls + 1))
            return jnp.maximum(out, moved + pulls * value), None

        return jax.lax.scan(double, best, doublings)[0], best

    start = jnp.zeros(cells + 1, values.dtype)
    last, before = jax.lax.scan(add_arm, start, (values[:-1], weights[:-1]))
    n = jnp.arange(cells + 1, dtype=values.dtype)[None, :]
    payoffs = jnp.where(n > 0, n * values[:, None], 0)  # no pulls of a forbidden arm pay 0, not NaN
    return _settle(jnp.concatenate([before, last[None]]), payoffs, weights, left)


def _constant_by_period(
    values: Array, costs: Array, room: Array, cells: int, size: int
) -> tuple[Array, Array]:
    """Tables [size + 1, cells + 1] of the best value and of the last arm that it needs.

    If that arm is a, a solution is one pull of a and the solution of the room that is left: had a
    later arm improved on the latter, it would have improved on the former too.
    """

    def add_arm(tables: tuple[Array, Array], one: tuple[Array, ...]) -> tuple[Any, None]:
        arm, value, cost = one

        def period(above: Array, row: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
            best, choice = row
            candidate = _shift(_pad(above), cost[None]) + value
            better = candidate > best
            best = jnp.where(better, candidate, best)
            return best, (best, jnp.where(better, arm, choice))

        nothing = jnp.full(cells + 1, -jnp.inf, values.dtype)
        return jax.lax.scan(period, nothing, tables)[1], None

    num_arms = len(values)
    arms = jnp.arange(num_arms, dtype=jnp.int32)
    shape = (size + 1, cells + 1)
    start = jnp.zeros(shape, values.dtype), jnp.full(shape, -1, jnp.int32)
    (best, choice), _ = jax.lax.scan(add_arm, start, (arms, values, costs))

    def follow(left: Array, _: None) -> tuple[Array, Array]:
        arm = choice[tuple(left)]
        step = jnp.stack([jnp.ones_like(arm), costs[arm]])
        return jnp.where(arm >= 0, left - step, left), arm

    _, sequence = jax.lax.scan(follow, room, None, length=size)
    return best[tuple(room)], pulls_of(sequence, num_arms)


def split_value(values: Any, costs: Any, money: Any, periods: Any) -> Any:
    """`[...]`: the most that pulls paying `values` `[..., K]` can earn if they may be split.

    min over lam >= 0 of lam money + periods max_a (values_a - lam costs_a)+, which is convex in
    lam, and at every lam no less than what whole pulls earn; without bounded periods the least
    value is above that by less than one pull. -inf forbids an arm. NumPy's or JAX's arrays.
    """
    xp = jnp if isinstance(values, jax.Array) else np
    costs = xp.asarray(costs).astype(values.dtype)

    def gains(lam: Any) -> Any:
        return values - lam[..., None] * costs

    def halve(_: Any, ends: tuple[Any, Any]) -> tuple[Any, Any]:
        lam = 0.5 * (ends[0] + ends[1])
        each = gains(lam)
        spent = xp.where(each.max(axis=-1) > 0, periods * costs[each.argmax(axis=-1)], 0)
        dear = spent > money  # at this price too much is still bought
        return xp.where(dear, lam, ends[0]), xp.where(dear, ends[1], lam)

    top = xp.maximum((values / costs).max(axis=-1), 0)
    ends = (xp.zeros_like(top), top)
    if xp is jnp:
        ends = jax.lax.fori_loop(0, 30, halve, ends)
    else:
        for _ in range(52):
            ends = halve(_, ends)
    found = [lam * money + periods * xp.maximum(gains(lam).max(axis=-1), 0) for lam in ends]
    return xp.minimum(*found)


def knapsack_groups(
    payoffs: Float[Array, "K N+1"], room: Room
) -> tuple[Float[Array, ""], Int[Array, " K"]]:
    """max of sum_a payoffs[a, n_a] over affordable n with n_a <= N, and n.

    payoffs[:, 0] = 0; rows may rise and fall. O(K N cells), or O(K N size cells) with bounded
    periods. Among optimal counts each arm, from the last to the first, takes the fewest.
    """
    wanted = (len(room.costs), None)
    _check(payoffs.shape, wanted, "payoffs must be [K, N + 1] = {want}, got {got}")
    weights, left = _weights(room)
    shape = (room.size + 1, room.cells + 1) if room.bounded else (room.cells + 1,)
    payoffs = payoffs[:, : shape[0]]  # no more pulls can fit
    num_arms, columns = payoffs.shape

    # The first arm alone takes its best count among those that fit.
    fits = jnp.full(shape, columns - 1)
    for axis in range(len(shape)):
        along = jax.lax.broadcasted_iota(jnp.int32, shape, axis)
        fits = jnp.minimum(fits, along // weights[0, axis])
    first = jax.lax.cummax(payoffs[0])[fits]

    def add_arm(best: Array, arm: tuple[Array, Array]) -> tuple[Array, Array]:
        # best: most that the arms so far earn in each room. out = max_n best[room - n w] + row[n].
        row, weight = arm
        padded = _pad(best)

        def shift(out: Array, pull: tuple[Array, Array]) -> tuple[Array, None]:
            n, payoff = pull
            return jnp.maximum(out, _shift(padded, n * weight) + payoff), None

        # Several shifts per loop body: XLA's CPU loops are dominated by loads of `out`.
        out, _ = jax.lax.scan(shift, best, (jnp.arange(1, columns), row[1:]), unroll=8)
        return out, best

    last, before = jax.lax.scan(add_arm, first, (payoffs[1:-1], weights[1:-1]))
    tables = [jnp.zeros((1, *shape), payoffs.dtype), before, last[None]]
    return _settle(jnp.concatenate(tables)[:num_arms], payoffs, weights, left)


def knapsack_feedback(
    payoff: Float[Array, "K ..."], room: Room
) -> tuple[Float[Array, ""], Int[Array, " size"]]:
    """Best order of pulls when pulling a with s spent, after t pulls, pays `payoff[a, (t,) s]`.

    payoff: `[K, cells + 1]`; with bounded periods also `[K, size, cells + 1]`. Returns the value
    and the sequence, -1 once stopped; `size` must leave room for all pulls. Stops where nothing
    more is to be gained; other ties go to the lowest arm, in the first period first.

    O(K cells), or O(K size cells) with bounded periods.
    """
    cells, size = room.cells, room.size
    by_period = payoff.ndim == 3 and room.bounded
    want = (len(room.costs), *((size,) if by_period else ()), cells + 1)
    _check(payoff.shape, want, "payoff must be [K, (size,) cells + 1] = {want}, got {got}")
    weights, left = _weights(room)
    costs, money = weights[:, -1], left[-1]

    def best_arm(later: Array, pays: Array, spent: Array) -> tuple[Array, Array]:
        """Value and action at `spent` [m], given values `later` [cells + 1] and `pays` [K, m]."""
        after = spent[None, :] + costs[:, None]
        gains = pays + later[jnp.minimum(after, cells)]
        gains = jnp.where(after <= money, gains, -jnp.inf)
        best = gains.max(0)
        return jnp.maximum(best, 0), jnp.where(best > 0, jnp.argmax(gains, axis=0), -1)

    nothing = jnp.zeros(cells + 1, payoff.dtype)
    if room.bounded:

        def period(later: Array, t: Array) -> tuple[Array, Array]:
            pays = payoff[:, t] if by_period else payoff
            value, arm = best_arm(later, pays, jnp.arange(cells + 1))
            open_ = t < left[0]
            return jnp.where(open_, value, 0), jnp.where(open_, arm, -1)

        first, actions = jax.lax.scan(period, nothing, jnp.arange(size), reverse=True)
    else:

        def cell(later: Array, s: Array) -> tuple[Array, Array]:
            value, arm = best_arm(later, payoff[:, s][:, None], s[None])
            return later.at[s].set(value[0]), arm[0]

        first, actions = jax.lax.scan(cell, nothing, jnp.arange(cells + 1), reverse=True)

    def follow(spent: Array, t: Array) -> tuple[Array, Array]:
        arm = actions[t, spent] if room.bounded else actions[spent]
        # Once stopped, a later period might want to pull again: go where all money is spent.
        return jnp.where(arm >= 0, spent + costs[arm], cells), arm

    _, sequence = jax.lax.scan(follow, jnp.zeros_like(money), jnp.arange(size))
    return first[0], sequence.astype(jnp.int32)


# ---- shared by the solvers


def _weights(room: Room) -> tuple[Int[Array, "K D"], Int[Array, " D"]]:
    """What a pull of each arm takes from each kind of room, and the room: (periods,) money."""
    costs, money, periods, cells, size, bounded = room
    if not any(isinstance(x, jax.core.Tracer) for x in (costs, money, periods)):
        check_costs(costs)
        check_limit("money", money, cells, "cells")
        if bounded:
            check_limit("periods", periods, size, "size")
        # Beyond the money of the table one cost is as good as another; int32 holds this one.
        costs = np.minimum(np.asarray(costs), cells + 1)
    costs = jnp.minimum(jnp.asarray(costs), cells + 1).astype(jnp.int32)
    left = jnp.asarray(money, jnp.int32)[None]
    if not bounded:
        return costs[:, None], left
    weights = jnp.stack([jnp.ones_like(costs), costs], axis=1)
    return weights, jnp.concatenate([jnp.asarray(periods, jnp.int32)[None], left])


def _pad(table: Array) -> Array:
    """-inf before the table along every axis, as long as the table."""
    return jnp.pad(table, [(length, 0) for length in table.shape], constant_values=-jnp.inf)


def _shift(padded: Array, steps: Int[Array, " D"]) -> Array:
    """`table[index - steps]`, -inf outside, from `_pad(table)`."""
    shape = tuple(length // 2 for length in padded.shape)
    starts = [length - jnp.minimum(steps[axis], length) for axis, length in enumerate(shape)]
    return jax.lax.dynamic_slice(padded, starts, shape)


def _settle(
    before: Float[Array, "K ..."], payoffs: Float[Array, "K N+1"], weights: Array, room: Array
) -> tuple[Array, Array]:
    """Value and counts, from the tables of what the arms before each one earn in each room."""
    n = jnp.arange(payoffs.shape[1])[:, None]

    def take(left: Array, arm: tuple[Array, ...]) -> tuple[Array, tuple[Array, Array]]:
        table, row, weight = arm
        rest = left[None, :] - n * weight[None, :]
        gain = table[tuple(jnp.maximum(rest, 0).T)] + row
        gain = jnp.where(jnp.all(rest >= 0, axis=1), gain, -jnp.inf)
        count = jnp.argmax(gain).astype(left.dtype)
        return left - count * weight, (gain[count], count)

    _, (gains, counts) = jax.lax.scan(take, room, (before, payoffs, weights), reverse=True)
    return gains[-1], counts.astype(jnp.int32)


def pulls_of(sequence: Int[Array, " T"], num_arms: int) -> Int[Array, " K"]:
    """Pulls of each arm; -1 is none."""
    return jnp.sum(sequence[None, :] == jnp.arange(num_arms)[:, None], axis=1, dtype=jnp.int32)


# ---- batches


SOLVERS = {"constant": knapsack_constant, "groups": knapsack_groups, "feedback": knapsack_feedback}


@functools.partial(jax.jit, static_argnums=(0, 5, 6, 7))
def _solve_many(
    kind: str, table: Array, costs: Array, money: Array, periods: Array, *static: Any
) -> tuple[Array, Array]:
    def solve(one: Array, money: Array, periods: Array) -> tuple[Array, Array]:
        return SOLVERS[kind](one, Room(costs, money, periods, *static))

    return jax.vmap(solve)(table, money, periods)


# Of a batch: the name of the table, and the shapes that it may have.
_TABLES = {
    "constant": ("values", (2,), "[S, K]"),
    "groups": ("payoffs", (3,), "[S, K, N + 1]"),
    "feedback": ("payoff", (3, 4), "[S, K, cells + 1] or [S, K, size, cells + 1]"),
}


def knapsack_batch(
    kind: str, table: np.ndarray, costs: Any, money: Any, periods: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """The solver of that kind for each of S tables: values [S], and pulls [S, K].

    kind: "constant", "groups" or "feedback"; the last gives sequences [S, most pulls that a problem
    can have] in place of pulls. money and periods: one number, or one per problem [S];
    periods=None: no limit but money.
    """
    table = _floats(*_TABLES[kind], table)
    if table.ndim == 4 and periods is None:
        raise ValueError("periods must be given when payoff has an axis of periods, got None")
    costs = check_costs(costs, table.shape[1])
    feedback = kind == "feedback"
    money = _each("money", money, len(table), table.shape[-1] - 1 if feedback else None)
    most = money // int(costs.min())
    if kind == "groups":
        most = np.minimum(most, table.shape[1] * (table.shape[2] - 1))
    by_period = table.ndim == 4
    if periods is None:
        periods, bounded = most, False
    else:
        limit = table.shape[2] if by_period else None
        periods = _each("periods", periods, len(table), limit)
        bounded = by_period or bool(np.any(periods < most))
        periods = np.minimum(periods, most)
    cells, size = int(money.max(initial=0)), int(periods.max(initial=0))
    # Money beyond the table is beyond reach, so a cost there is as good as any other.
    costs = np.minimum(costs, cells + 1)
    if jax.default_backend() == "cpu":
        from irsppl.inner.cpu import knapsack as kernels

        return kernels.SOLVERS[kind](table, costs, money, periods, cells, size, bounded)
    if feedback:
        table = table[..., : cells + 1]
    if by_period:
        table = table[:, :, :size]
    value, pulls = _solve_many(kind, table, costs, money, periods, cells, size, bounded)
    return np.asarray(value), np.asarray(pulls)


# ---- arguments


def check_costs(costs: Any, num_arms: int | None = None) -> np.ndarray:
    """Costs `[K]` on the host, or `ValueError` unless they are whole numbers of at least 1."""
    array = np.asarray(costs)
    if array.ndim != 1 or (num_arms is not None and len(array) != num_arms) or not len(array):
        want = "[K]" if num_arms is None else f"[{num_arms}]"
        raise ValueError(f"costs must be one whole number per arm, {want}, got {costs!r}")
    if array.dtype.kind not in "iu" or array.min() < 1:
        raise ValueError(f"costs must be whole numbers of at least 1, got {array.tolist()}")
    return array.astype(np.int64)


def check_limit(name: str, value: Any, most: int | None, of: str = "table") -> np.ndarray:
    """`value` on the host, or `ValueError` unless whole numbers between 0 and `most`."""
    array = np.asarray(value)
    valid = "whole numbers of at least 0" if most is None else f"whole, from 0 to {most} ({of})"
    bad = array.dtype.kind not in "iu" or np.any(array < 0)
    if bad or (most is not None and np.any(array > most)):
        raise ValueError(f"{name} must be {valid}, got {array.tolist()}")
    return array.astype(np.int64)


def _each(name: str, value: Any, num_problems: int, most: int | None) -> np.ndarray:
    array = check_limit(name, value, most)
    if array.shape not in ((), (num_problems,)):
        raise ValueError(f"{name} must be one number or [{num_problems}], got {array.shape}")
    return np.ascontiguousarray(np.broadcast_to(array, (num_problems,)))


def _floats(name: str, ndims: tuple[int, ...], shape: str, table: Any) -> np.ndarray:
    """Single precision stays single, anything else becomes double."""
    array = np.ascontiguousarray(table)
    if array.ndim not in ndims or 0 in array.shape[1:]:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    return array if array.dtype == np.float32 else array.astype(np.float64, copy=False)


def _check(got: tuple[int, ...], want: tuple[int | None, ...], message: str) -> None:
    fits = len(got) == len(want) and all(w in (None, g) for g, w in zip(got, want, strict=True))
    if not fits or 0 in got:
        raise ValueError(message.format(want=want, got=got))
