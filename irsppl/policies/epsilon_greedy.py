"""Epsilon-greedy with an exploration rate that decays like 1/t."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from irsppl.bandit import Bandit
from irsppl.policies._base import Policy


class EpsilonGreedy(Policy):
    """With probability min(1, c / t) an arm at random, otherwise the best predictive mean.

    The epsilon_n-greedy rule of Auer, Cesa-Bianchi and Fischer (2002). c: by default the number of
    arms, so that the first K pulls are exploration. The last period is never exploration, which
    could not pay there.
    """

    name: ClassVar[str] = "epsilon-greedy"
    c: float | None = eqx.field(static=True)

    def __init__(self, c: float | None = None):
        number = isinstance(c, (int, float)) and not isinstance(c, bool)
        if c is not None and not (number and math.isfinite(c) and c >= 0):
            raise ValueError(f"c must be a number that is not negative, got {c!r}")
        self.c = None if c is None else float(c)

    def rate(self, bandit: Any) -> float:
        """c on this bandit."""
        return float(bandit.num_arms) if self.c is None else self.c

    def settled(self, bandit: Bandit) -> bool:
        return self.rate(bandit) == 0 or int(bandit.remaining) == 1

    def __call__(self, key: Array, bandit: Bandit) -> Array:
        coin_key, arm_key = jax.random.split(key)
        t = bandit.period + 1
        explore = jax.random.uniform(coin_key) * t < self.rate(bandit)
        drawn = jax.random.randint(arm_key, (), 0, bandit.num_arms)
        best = jnp.argmax(bandit.belief.predictive_mean())
        return jnp.where(explore & (bandit.remaining > 1), drawn, best)
