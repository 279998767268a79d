"""Delays between a pull and the moment at which its reward is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from irsppl._checks import host64, side_key
from irsppl.constraints import Arrivals, Moment, Prompt
from irsppl.horizons import integer_law
from irsppl.outcomes import Outcome


class Delay(Arrivals):
    """One law of the delay per arm; a reward with delay d is known d + 1 decisions later.

    Delays are independent of rewards. Whatever would arrive after the last decision counts as
    never, `periods`.
    """

    name: ClassVar[str] = "delay"
    instead: ClassVar[str] = "'irs.fh', 'irs.ff' (bound only) or 'irs.v-zero-separable'"
    beside: ClassVar[frozenset[str]] = frozenset({"budget", "horizon law"})
    draws: ClassVar[str] = "delays"

    cdf: Float[Array, "K T"]  # P(D <= j)
    fixed: tuple[int, ...] | None = eqx.field(static=True)  # where no arm's delay is random

    def missed(self, num_arms: int) -> tuple[int, ...] | None:
        return self.fixed

    def of_arms(self, arms: Sequence[int]) -> Delay:
        # Arms that have joined have the delay of all others.
        rows = [min(arm, len(self.cdf) - 1) for arm in arms]
        fixed = None if self.fixed is None else tuple(self.fixed[row] for row in rows)
        return Delay(self.cdf[np.asarray(rows)], fixed)

    def check_more_arms(self) -> None:
        cdf = np.asarray(self.cdf)
        if not np.all(cdf == cdf[0]):
            raise ValueError("arms cannot be added where each has a delay of its own")

    def sample(self, key: Array, bandit: Moment) -> Int[Array, "K N"]:
        return self._after(side_key(key, "delays"), bandit.waited())

    def _after(self, key: Array, waited: Int[Array, "K N"]) -> Int[Array, "K N"]:
        """Delays of pulls that have already waited so long (0 for those to come)."""
        periods = self.cdf.shape[1]
        if self.fixed is not None:
            drawn = jnp.asarray(self.fixed, jnp.int32)[:, None]
        else:
            past = jnp.take_along_axis(self.cdf, jnp.maximum(waited - 1, 0), axis=1)
            past = jnp.where(waited > 0, past, 0)
            level = past + (1 - past) * jax.random.uniform(key, waited.shape, self.cdf.dtype)
            find = jax.vmap(lambda cdf, at: jnp.searchsorted(cdf, at, side="right"))
            drawn = find(self.cdf, level).astype(jnp.int32)
            drawn = jnp.where(past < 1, drawn, 0)
        # A reward that its law had promised earlier is due at any moment, not lost.
        return jnp.clip(jnp.maximum(drawn, waited), 0, periods)

    def draw(self, bandit: Moment, uniforms: Callable[..., np.ndarray]) -> np.ndarray:
        """By inverting uniform levels."""
        cdf, ago = np.asarray(self.cdf, np.float64), np.asarray(bandit.waited())
        levels = uniforms(bandit.num_arms, bandit.size)
        drawn = np.empty(levels.shape, np.int32)
        for arm, row in enumerate(cdf):
            if self.fixed is not None:
                drawn[:, arm] = self.fixed[arm]
                continue
            past = np.where(ago[arm] > 0, row[np.maximum(ago[arm] - 1, 0)], 0.0)
            found = np.searchsorted(row, past + (1 - past) * levels[:, arm], side="right")
            drawn[:, arm] = np.where(past < 1, found, 0)
        return np.clip(np.maximum(drawn, ago), 0, cdf.shape[1]).astype(np.int32)

    def completed(self, outcome: Outcome) -> Outcome:
        if outcome.delays is not None:
            return outcome
        if self.fixed is None:
            raise ValueError(
                "outcome.delays must go with outcome.rewards, because this bandit's delays are "
                "random: Outcome(means=..., rewards=..., delays=...)"
            )
        delays = self._after(jax.random.key(0), jnp.zeros(outcome.rewards.shape, jnp.int32))
        return Outcome(outcome.means, outcome.rewards, outcome.belief, delays, outcome.periods)

    def impossible(self, bandit: Moment, outcomes: Outcome) -> str:
        if self.fixed is None or outcomes.delays is None:
            return ""
        fixed, given = np.asarray(self.fixed)[:, None], np.asarray(outcomes.delays)
        to_come = np.asarray(bandit.waited()) == 0  # one that is pending may be overdue
        if np.all((np.minimum(given, self.cdf.shape[1]) == fixed) | ~to_come):
            return ""
        return f"delays must be those of the bandit, which are no random ones: {self.fixed}"

    def shown(self, num_arms: int, periods: int) -> Float[np.ndarray, " K"]:
        return host64(self.cdf)[:, : periods - 1].sum(axis=1)


def read_delay(delay: Any, num_arms: int, periods: int) -> Arrivals:
    """The law of `delay`: a number, one per arm (infinity: never seen), or a distribution."""
    if delay is None:
        return Prompt()
    if hasattr(delay, "log_prob"):
        mass = integer_law("delay", delay)(periods)
        if mass.ndim > 2 or (mass.ndim == 2 and len(mass) not in (1, num_arms)):
            raise ValueError(
                f"delay must be one distribution or one per arm ({num_arms}), got batch shape "
                f"{delay.batch_shape}"
            )
        table = np.broadcast_to(np.cumsum(mass, axis=-1), (num_arms, periods))
        table = np.minimum(np.where(table > 1 - 1e-9, 1.0, table), 1.0)
        if np.all((table == 0) | (table == 1)):
            return _fixed([int(d) for d in (table == 0).sum(axis=1)], periods)
        return Delay(jnp.asarray(table, jnp.result_type(float)), None)
    values = np.atleast_1d(np.asarray(delay, dtype=object))
    if values.ndim != 1 or len(values) not in (1, num_arms):
        raise ValueError(f"delay must be one number or one per arm ({num_arms}), got {delay!r}")
    return _fixed([_one(value, delay, periods) for value in values], periods, num_arms)


def _one(value: Any, delay: Any, periods: int) -> int:
    try:
        no_number = isinstance(value, bool | np.bool_ | str | bytes)
        number = math.nan if no_number else float(value)
    except OverflowError:  # a whole number beyond the largest float
        number = math.inf
    except (TypeError, ValueError):
        number = math.nan
    if number == math.inf:
        return periods
    if not (number >= 0 and number == int(number)):
        raise ValueError(
            "delay must be a whole number of at least 0 (infinity: never seen), one per arm, or a "
            f"NumPyro distribution over 0, 1, ..., got {delay!r}"
        )
    return min(int(number), periods)


def _fixed(delays: list[int], periods: int, num_arms: int | None = None) -> Arrivals:
    if not any(delays):
        return Prompt()
    if num_arms is not None and len(delays) == 1:
        delays = delays * num_arms
    table = np.arange(periods)[None, :] >= np.asarray(delays)[:, None]
    return Delay(jnp.asarray(table, jnp.result_type(float)), tuple(delays))
