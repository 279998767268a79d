"""What pulls pay in an inner problem: one class for each kind of payoff, and who solves it.

A penalty returns one of these for a future; nobody but this file asks whether pulls cost money. A
new kind of payoff is a class here with `solve` (traceable, one future); a `HostPayoff` also has
`values`, by which a kernel solves batches on the CPU.
"""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from irsppl.bandit import Bandit
from irsppl.budgets import Purse
from irsppl.inner import knapsack
from irsppl.inner.allocation import allocate, allocate_batch
from irsppl.inner.lattice import solve_lattice


class Inner(eqx.Module):
    """Solution of an inner problem.

    value: total payoff; action: first arm to pull (-1 = stop); pulls [K]; sequence [T]: the arms in
    order, where order matters (None elsewhere), -1 after the last period.
    """

    value: Float[ArrayLike, ""]
    action: Int[ArrayLike, ""]
    pulls: Int[ArrayLike, " K"]
    sequence: Int[ArrayLike, " T"] | None = None


class Payoff(eqx.Module):
    """What the pulls of one future pay."""

    @abc.abstractmethod
    def solve(self, bandit: Bandit, periods: Int[Array, ""]) -> Inner:
        """The best pulls of this future, `periods` of them or as many as money buys; traceable."""


class HostPayoff(Payoff):
    """One whose batches a CPU kernel solves; S futures have a leading axis."""

    @abc.abstractmethod
    def values(self, bandit: Bandit, periods: np.ndarray) -> Float[np.ndarray, " S"]:
        """Total payoffs of the best pulls of each future, periods [S], in float64."""


class PerArm(HostPayoff):
    """Every pull of an arm pays the same."""

    each: Float[ArrayLike, "... K"]

    def solve(self, bandit: Bandit, periods: Int[Array, ""]) -> Inner:
        each = jnp.asarray(self.each)
        if bandit.purse is not None:
            return _buy(bandit, "constant", jnp.where(bandit.purse.affordable(), each, -jnp.inf))
        arm = jnp.argmax(each)
        pulls = jnp.where(jnp.arange(len(each)) == arm, periods, 0)
        return Inner(periods * each[arm], arm, pulls)

    def values(self, bandit: Bandit, periods: np.ndarray) -> np.ndarray:
        each = np.asarray(self.each, np.float64)
        if bandit.purse is None:
            return periods * each.max(axis=1)
        each = np.where(np.asarray(bandit.purse.affordable()), each, -np.inf)
        return _bought(bandit, "constant", each)


class PerPull(HostPayoff):
    """The n-th pull of an arm pays `each[a, n]`, whenever it is made."""

    each: Float[ArrayLike, "... K N"]

    def solve(self, bandit: Bandit, periods: Int[Array, ""]) -> Inner:
        total = jnp.pad(jnp.cumsum(jnp.asarray(self.each), axis=1), ((0, 0), (1, 0)))
        if bandit.purse is not None:
            most = _most_pulls(bandit, bandit.purse)
            counts = jnp.arange(total.shape[1])[None, :]
            return _buy(bandit, "groups", jnp.where(counts <= most[:, None], total, -jnp.inf))
        value, pulls = allocate(total, periods)
        # Any arm with a pull would be a first action; the most pulled one makes it like TS for
        # long horizons (paper, Proposition on asymptotic behaviour).
        return Inner(value, jnp.argmax(pulls), pulls)

    def values(self, bandit: Bandit, periods: np.ndarray) -> np.ndarray:
        each = np.asarray(self.each)
        total = np.zeros((*each.shape[:2], each.shape[2] + 1))
        np.cumsum(each, axis=2, dtype=np.float64, out=total[:, :, 1:])
        if bandit.purse is not None:
            most = np.asarray(_most_pulls(bandit, bandit.purse))
            counts = np.arange(total.shape[2])[None, :]
            return _bought(bandit, "groups", np.where(counts <= most[:, None], total, -np.inf))
        values = np.zeros(len(total))
        for length in np.unique(periods[periods > 0]).tolist():
            same = periods == length
            values[same] = allocate_batch(total[same, :, : length + 1])[0]
        return values


class PerPeriod(HostPayoff):
    """A pull in period t pays `each[a, t]`; periods that are not `played` pay nothing."""

    each: Float[ArrayLike, "... K N"]
    played: Bool[ArrayLike, "... N"]

    def solve(self, bandit: Bandit, periods: Int[Array, ""]) -> Inner:
        each, played = jnp.asarray(self.each), jnp.asarray(self.played)
        arms = jnp.argmax(each, axis=0)
        sequence = jnp.where(played, arms, -1)
        value = jnp.sum(jnp.where(played, each.max(axis=0), 0))
        return Inner(value, arms[0], _count(sequence, len(each)), sequence)

    def values(self, bandit: Bandit, periods: np.ndarray) -> np.ndarray:
        best = np.asarray(self.each, np.float64).max(axis=1)
        return np.where(np.asarray(self.played), best, 0).sum(axis=1)


class PerMoney(HostPayoff):
    """A pull after so many cells of money are spent pays `each[a, cells]`, or `[a, t, cells]`."""

    each: Float[ArrayLike, "..."]
    by_period: bool = eqx.field(static=True)

    def solve(self, bandit: Bandit, periods: Int[Array, ""]) -> Inner:
        return _buy(bandit, "feedback", jnp.asarray(self.each), self.by_period)

    def values(self, bandit: Bandit, periods: np.ndarray) -> np.ndarray:
        assert bandit.purse is not None
        each = np.asarray(self.each)[..., : int(bandit.purse.grid_money) + 1]
        if self.by_period:
            each = each[:, :, : int(bandit.remaining)]
        return _bought(bandit, "feedback", each, self.by_period)


class PerCounts(Payoff):
    """A pull when every arm has been pulled so often pays `each[a, n_1, ..., n_K]`.

    most_pulled: not the first arm of the best order is played but the one that it pulls most.
    """

    each: Float[Array, "K ..."]
    most_pulled: bool = eqx.field(static=True, default=False)

    def solve(self, bandit: Bandit, periods: Int[Array, ""]) -> Inner:
        num_arms, size = self.each.shape[:2]
        allowed = None
        if bandit.purse is not None:
            costs = bandit.purse.costs
            counts = jnp.meshgrid(*[jnp.arange(size)] * num_arms, indexing="ij")
            left = bandit.purse.money - sum(n * costs[arm] for arm, n in enumerate(counts))
            allowed = jnp.stack([left >= costs[arm] for arm in range(num_arms)])
        value, sequence = solve_lattice(self.each, periods, num_arms, size, allowed)
        pulls = _count(sequence, num_arms)
        return Inner(value, _most(pulls) if self.most_pulled else sequence[0], pulls, sequence)


# ---- under a budget


def _buy(bandit: Bandit, kind: str, table: Array, by_period: bool = False) -> Inner:
    """How to spend what is left at best, stopping when nothing more pays."""
    purse = bandit.purse
    assert purse is not None
    value, solution = knapsack.SOLVERS[kind](
        table,
        purse.grid_costs,
        purse.grid_money,
        bandit.remaining,
        cells=purse.cells,
        size=bandit.size,
        # The number of pulls is a state of its own beside the money.
        bounded_periods=bandit.capped or by_period,
    )
    if kind == "feedback":
        return Inner(value, solution[0], _count(solution, bandit.num_arms), solution)
    return Inner(value, _most(solution), solution)


def _bought(bandit: Bandit, kind: str, tables: np.ndarray, by_period: bool = False) -> Any:
    purse = bandit.purse
    assert purse is not None
    periods = int(bandit.remaining) if bandit.capped or by_period else None
    costs, money = np.asarray(purse.grid_costs), int(purse.grid_money)
    value, _ = knapsack.knapsack_batch(kind, tables, costs, money, periods)
    return np.asarray(value, np.float64)


def _most_pulls(bandit: Bandit, purse: Purse) -> Int[Array, " K"]:
    """What money buys of each arm; on a coarse grid it might seem to buy more."""
    return jnp.minimum(purse.money // purse.costs, bandit.remaining)


def _most(pulls: Int[Array, " K"]) -> Int[Array, ""]:
    """The arm with the most pulls; -1 where it is best to stop."""
    return jnp.where(jnp.sum(pulls) > 0, jnp.argmax(pulls), -1)


def _count(sequence: Int[Array, " T"], num_arms: int) -> Int[Array, " K"]:
    return jnp.sum(sequence[None, :] == jnp.arange(num_arms)[:, None], axis=1)
