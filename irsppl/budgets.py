"""Costs per pull and a budget, counted in whole units."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from irsppl._checks import as_numbers, host64

# Money is counted in units of the largest amount that divides every cost, so that nothing is lost
# to rounding; where there is none, in units this small.
_FINEST = 2**30
# Inner problems plan over about so many amounts of money at most.
_CELLS = 4096


class Purse(eqx.Module):
    """What pulls cost and what is left to spend, in units."""

    costs: Int[Array, " K"]
    money: Int[Array, ""]
    unit: float = eqx.field(static=True)
    step: int = eqx.field(static=True)  # units in one cell of the inner problems' grid
    cells: int = eqx.field(static=True)  # cells in the whole budget

    def affordable(self) -> Bool[Array, " K"]:
        return self.costs <= self.money

    def pulls_left(self) -> Int[Array, ""]:
        """Pulls of the cheapest arm that the money still buys."""
        return self.money // jnp.min(self.costs)

    def pay(self, arm: Array) -> Purse:
        return eqx.tree_at(lambda p: p.money, self, self.money - self.costs[arm])

    @property
    def grid_costs(self) -> Int[Array, " K"]:
        """Costs in cells, rounded down: what the inner problem may do only grows by it."""
        return self.costs // self.step

    @property
    def grid_money(self) -> Int[Array, ""]:
        return self.money // self.step


def read_budget(costs: Any, budget: Any, num_arms: int) -> Purse | None:
    """A full purse, or None where pulls cost nothing."""
    if costs is None and budget is None:
        return None
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
    # A cell never holds more than the cheapest pull, so that no pull is free on the grid.
    step = min(max(1, -(-money // _CELLS)), min(units))
    return Purse(
        jnp.asarray(units, jnp.int32), jnp.asarray(money, jnp.int32), unit, step, money // step
    )


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
