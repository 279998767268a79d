"""Inner problems under a budget: how to spend what is left, stopping when nothing more pays.

Three kinds of table say what a pull pays: "constant" `[K]`, whenever it is made; "groups" `[K, N]`,
the n-th pull of its arm; "feedback" `[K, cells + 1]` or `[K, T, cells + 1]`, a pull after so much
money is spent (in period t).
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from irsppl.bandit import Bandit
from irsppl.inner import knapsack
from irsppl.outcomes import Outcome
from irsppl.penalties._base import Inner, Penalty


def spend(bandit: Bandit, kind: str, table: Array) -> Inner:
    """The best way to spend, for one future; traceable."""
    purse = bandit.purse
    assert purse is not None
    table = _affordable(bandit, kind, table)
    solve = getattr(knapsack, f"knapsack_{kind}")
    value, solution = solve(
        table,
        purse.grid_costs,
        purse.grid_money,
        bandit.remaining,
        cells=purse.cells,
        size=bandit.size,
        bounded_periods=_by_period(bandit, table),
    )
    if kind != "feedback":
        return Inner(value, first_action(solution), solution)
    pulls = jnp.sum(solution[None, :] == jnp.arange(bandit.num_arms)[:, None], axis=1)
    return Inner(value, solution[0], pulls, solution)


def spend_values(penalty: Penalty, bandit: Bandit, outcomes: Outcome) -> np.ndarray | None:
    """Values of a batch of futures by the batch solvers; None where the penalty has no table."""
    kind = penalty.spends(bandit)
    if kind is None:
        return None
    purse = bandit.purse
    assert purse is not None
    tables = np.asarray(_tables(penalty, bandit, outcomes))
    costs, money = np.asarray(purse.grid_costs), int(purse.grid_money)
    periods = int(bandit.remaining) if _by_period(bandit, tables[0]) else None
    if kind == "feedback":
        tables = tables[..., : money + 1]
        if tables.ndim == 4:
            tables = tables[:, :, : int(bandit.remaining)]
    value, _ = getattr(knapsack, f"knapsack_{kind}_batch")(tables, costs, money, periods)
    return np.asarray(value, np.float64)


@eqx.filter_jit
def _tables(penalty: Penalty, bandit: Bandit, outcomes: Outcome) -> Array:
    kind = penalty.spends(bandit)
    assert kind is not None

    def one(outcome: Outcome) -> Array:
        return _affordable(bandit, kind, penalty.spending(bandit, outcome))

    return jax.vmap(one)(outcomes)


def _affordable(bandit: Bandit, kind: str, table: Array) -> Array:
    """The table with what money cannot buy forbidden: on a coarse grid it might seem to."""
    purse = bandit.purse
    assert purse is not None
    if kind == "constant":
        return jnp.where(purse.affordable(), table, -jnp.inf)
    if kind == "groups":
        total = jnp.pad(jnp.cumsum(table, axis=1), ((0, 0), (1, 0)))
        most = jnp.minimum(purse.money // purse.costs, bandit.remaining)
        return jnp.where(jnp.arange(total.shape[1])[None, :] <= most[:, None], total, -jnp.inf)
    return table


def _by_period(bandit: Bandit, table: Any) -> bool:
    """Whether the number of pulls is a state of its own beside the money."""
    return bandit.capped or np.ndim(table) == 3


def first_action(pulls: Int[Array, " K"]) -> Int[Array, ""]:
    """The arm with the most pulls; -1 where it is best to stop."""
    return jnp.where(jnp.sum(pulls) > 0, jnp.argmax(pulls), -1)
