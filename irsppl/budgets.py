"""Costs per pull and a budget, counted in whole units."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from irsppl._checks import MOST_PERIODS, as_numbers, host64, is_concrete
from irsppl._fields import changed
from irsppl.constraints import Access, End, Free, Moment
from irsppl.inner import knapsack

# Money is counted in units of the largest amount that divides every cost, so that nothing is lost
# to rounding; where there is none, in units this small.
_FINEST = 2**30
# Inner problems plan over about so many amounts of money at most.
_CELLS = 4096


class Purse(Access):
    """What pulls cost and what is left to spend, in units."""

    name: ClassVar[str] = "budget"
    instead: ClassVar[str] = "'ts', 'irs.fh', 'irs.ff' (bound only) or 'irs.v-zero'"
    may_stop: ClassVar[bool] = True

    costs: Int[Array, " K"]
    money: Int[Array, ""]
    unit: float = eqx.field(static=True)
    step: int = eqx.field(static=True)  # units in one cell of the inner problems' grid
    cells: int = eqx.field(static=True)  # cells in the whole budget
    capped: bool = eqx.field(static=True)  # whether the horizon can end play before the money does

    def fit(self, num_arms: int, periods: int | None, end: End) -> tuple[Purse, int]:
        if end.binds:
            raise ValueError(
                "horizon must be a whole number where there is a budget, not a law: money and an "
                "unknown end together are not planned for"
            )
        most = int(self._pulls_left())
        capped = periods is not None and periods < most
        periods = periods if periods is not None and capped else most
        if periods > MOST_PERIODS:
            raise ValueError(
                f"budget pays for {periods:,} pulls of the cheapest arm, more than the "
                f"{MOST_PERIODS:,} that are planned for: give a horizon as well, or a smaller "
                "budget"
            )
        return changed(self, capped=capped), periods

    def after(self, arm: Array) -> Purse:
        return changed(self, money=self.money - self.costs[arm])

    def of_arms(self, arms: Sequence[int]) -> Purse:
        return changed(self, costs=self.costs[np.asarray(arms)])

    def check_more_arms(self) -> None:
        raise ValueError("arms cannot be added where pulls cost money")

    def allowed(self, bandit: Moment, pulls: Sequence[Array] = ()) -> Bool[Array, "K ..."]:
        left = self.money - sum(n * self.costs[arm] for arm, n in enumerate(pulls))
        return self.costs.reshape(-1, *[1] * jnp.ndim(left)) <= left[None]

    def refusal(self, bandit: Moment, arm: int) -> str:
        return f"arm {arm} costs more than the {self.budget():g} that is left"

    def periods(self, remaining: Array) -> Int[Array, ""]:
        return jnp.minimum(remaining, self._pulls_left())

    def _pulls_left(self) -> Int[Array, ""]:
        """Pulls of the cheapest arm that the money still buys."""
        return self.money // jnp.min(self.costs)

    def over(self, bandit: Moment) -> str:
        return f"{self.budget():g} is left"

    def most(self, bandit: Moment) -> Int[Array, " K"]:
        return jnp.minimum(self.money // self.costs, bandit.remaining)

    def before(self, bandit: Moment) -> Int[Array, "K K"]:
        return self.bought(self.money - self.costs)  # the pull of a must be paid as well

    def bought(self, money: Int[Array, " M"]) -> Int[Array, "M K"]:
        """Pulls of each arm that so many units buy."""
        return jnp.maximum(money, 0)[:, None] // self.costs[None, :]

    def units(self, bandit: Moment) -> Float[np.ndarray, " K"]:
        share = host64(self.costs) / float(self.money) * int(bandit.remaining)
        return np.maximum(share, 1.0 if self.capped else 0.0)

    def best_constant(self, bandit: Moment, each: Array, periods: Array) -> tuple[Array, Array]:
        each = jnp.where(self.allowed(bandit), each, -jnp.inf)
        value, pulls = knapsack.knapsack_constant(each, self._room(bandit, self.capped))
        if self.step == 1:
            return value, pulls
        # A coarse grid seems to buy more than it does; pulls that may be split buy little more.
        split = knapsack.split_value(each, self.costs, self.money, bandit.remaining)
        return jnp.minimum(value, split), jnp.minimum(pulls, self.most(bandit))

    def best_groups(self, bandit: Moment, total: Array, periods: Array) -> tuple[Array, Array]:
        # On a coarse grid the money might seem to buy more.
        fits = jnp.arange(total.shape[1])[None, :] <= self.most(bandit)[:, None]
        total = jnp.where(fits, total, -jnp.inf)
        return knapsack.knapsack_groups(total, self._room(bandit, self.capped))

    def best_feedback(self, bandit: Moment, each: Array, by_period: bool) -> tuple[Array, Array]:
        """Value and sequence where a pull after so many cells are spent pays `each[a, cells]`.

        by_period: `each[a, t, cells]`.
        """
        return knapsack.knapsack_feedback(each, self._room(bandit, self.capped or by_period))

    def _room(self, bandit: Moment, bounded: bool) -> knapsack.Room:
        """bounded: the number of pulls is a state of its own beside the money."""
        limits = (self.grid_costs, self.grid_money, bandit.remaining)
        return knapsack.Room(*limits, self.cells, bandit.size, bounded)

    def constant_values(self, bandit: Moment, each: Any, periods: np.ndarray) -> np.ndarray:
        each = np.where(np.asarray(self.allowed(bandit)), each, -np.inf)
        values = self._plans("constant", bandit, each, self.capped)[0]
        if self.step == 1:
            return values
        money, costs = self.account()
        split = knapsack.split_value(host64(each), costs, money, int(bandit.remaining))
        return np.minimum(values, split)

    def group_plans(self, bandit: Moment, total: Any, periods: np.ndarray) -> tuple[Any, Any]:
        fits = np.arange(total.shape[2])[None, :] <= np.asarray(self.most(bandit))[:, None]
        total = np.where(fits, total, -np.inf)
        return self._plans("groups", bandit, total, self.capped)

    def feedback_values(self, bandit: Moment, each: Any, by_period: bool) -> np.ndarray:
        """Values of `best_feedback` for a batch, on the host."""
        each = each[..., : int(self.grid_money) + 1]
        if by_period:
            each = each[:, :, : int(bandit.remaining)]
        return self._plans("feedback", bandit, each, self.capped or by_period)[0]

    def _plans(self, kind: str, bandit: Moment, tables: Any, bounded: bool) -> tuple[Any, Any]:
        periods = int(bandit.remaining) if bounded else None
        costs, money = np.asarray(self.grid_costs), int(self.grid_money)
        values, plans = knapsack.knapsack_batch(kind, tables, costs, money, periods)
        return np.asarray(values, np.float64), np.asarray(plans)

    def budget(self) -> Any:
        concrete = is_concrete(self.money) and np.ndim(self.money) == 0
        return int(self.money) * self.unit if concrete else self.money * self.unit

    def account(self) -> tuple[int, list[int]]:
        return int(self.money), np.asarray(self.costs).tolist()

    def restored(self, money: int | None) -> Purse:
        return changed(self, money=jnp.asarray(money, jnp.int32))

    @property
    def grid_costs(self) -> Int[Array, " K"]:
        """Costs in cells, rounded down: what the inner problem may do only grows by it."""
        return self.costs // self.step

    @property
    def grid_money(self) -> Int[Array, ""]:
        return self.money // self.step


def read_budget(costs: Any, budget: Any, num_arms: int) -> Access:
    """A full purse, where pulls cost something."""
    if costs is None and budget is None:
        return Free()
    if costs is None or budget is None:
        missing = "costs" if costs is None else "budget"
        raise ValueError(f"costs and budget belong together: {missing} is missing")
    prices = _numbers("costs", costs)
    total = _numbers("budget", budget)
    if total.shape != (1,):
        raise ValueError(f"budget must be one positive number, got {budget!r}")
    if prices.shape == (1,) and num_arms > 1 and not np.ndim(costs):
        prices = np.repeat(prices, num_arms)
    if prices.shape != (num_arms,):
        raise ValueError(f"costs must be one positive number per arm ({num_arms}), got {costs!r}")
    if total[0] < prices.min() * (1 - 1e-12):
        raise ValueError(
            f"budget must pay for the cheapest arm at least, which costs {prices.min():g}, got "
            f"{total[0]:g}"
        )
    least = float(total[0]) / _FINEST
    if prices.min() < least:
        raise ValueError(
            f"costs must be at least budget / 2**30 = {least:.3g} each, got {costs!r}: money is "
            "counted in whole units. Where it never runs out, leave costs and budget out"
        )
    # What the whole budget does not buy is too dear, by however much.
    prices = np.minimum(prices, _FINEST * float(total[0]))
    unit, units, money = _in_units(prices, float(total[0]))
    units = [min(cost, money + 1) for cost in units]  # too dear is too dear, and fits an int32
    step = _step(np.array(units), money)
    whole, left = jnp.asarray(units, jnp.int32), jnp.asarray(money, jnp.int32)
    return Purse(whole, left, unit, step, money // step, capped=False)


def _step(costs: Int[np.ndarray, " K"], money: int) -> int:
    """Units in one cell: as many as make about `_CELLS` cells, or up to twice that.

    Costs are rounded down to cells, so the step under which the arm that loses most by it loses
    least is taken. A cell never holds more than the cheapest pull: no pull is free on the grid.
    """
    least, cheapest = max(1, -(-money // _CELLS)), int(costs.min())
    if least == 1 or least >= cheapest:
        return min(least, cheapest)
    payable, most = costs[costs <= money], min(2 * least, cheapest)
    # Steps of which the cheapest pull, made most often, is a whole number, and steps between.
    cells = np.linspace(cheapest // most, cheapest // least, 512).astype(np.int64)
    tried = np.linspace(least, most, 512).astype(np.int64)
    steps = np.unique(np.concatenate([tried, cheapest // cells]))
    steps = steps[(steps >= least) & (steps <= most)]
    lost = (payable[None, :] % steps[:, None] / payable[None, :]).max(axis=1)
    return int(steps[np.argmin(lost)])


def _numbers(name: str, value: Any) -> np.ndarray:
    given = as_numbers(name, value)
    if given.dtype == bool or np.issubdtype(given.dtype, np.complexfloating):
        raise ValueError(f"{name} must be positive numbers, got {value!r}")
    numbers = np.atleast_1d(host64(given))
    if numbers.ndim != 1 or not np.all(np.isfinite(numbers) & (numbers > 0)):
        raise ValueError(f"{name} must be positive and finite, got {value!r}")
    return numbers


def _in_units(costs: np.ndarray, budget: float) -> tuple[float, list[int], int]:
    """(unit, costs in units, budget in units)."""
    exact = [Fraction(cost).limit_denominator(10**6) for cost in costs]
    if all(abs(float(e) - c) <= 1e-12 * c for e, c in zip(exact, costs, strict=True)):
        # The greatest common divisor of fractions; what is left of the budget buys nothing.
        scale = math.lcm(*(e.denominator for e in exact))
        whole = [int(e * scale) for e in exact]
        divisor = math.gcd(*whole)
        whole = [w // divisor for w in whole]
        unit = divisor / scale
        money = math.floor(budget / unit * (1 + 1e-12))
        if money < _FINEST:
            return unit, whole, money
    unit = budget / _FINEST
    # Rounded down, so that what is affordable stays so: a billionth of the budget is forgiven.
    return unit, [math.floor(c / unit) for c in costs], _FINEST
