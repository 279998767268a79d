"""Play the arm with the best predictive mean: no exploration at all."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from irsppl.bandit import Bandit
from irsppl.policies._base import Policy


class Greedy(Policy):
    """The myopic arm, optimal only when one period is left."""

    name: ClassVar[str] = "greedy"
    serves: ClassVar[frozenset[str]] = frozenset({"delay", "budget", "horizon law"})
    deterministic: ClassVar[bool] = True

    def __call__(self, key: Array, bandit: Bandit) -> Array:
        return best_allowed(bandit, bandit.belief.predictive_mean())


def best_allowed(bandit: Bandit, score: Float[Array, " K"]) -> Int[Array, ""]:
    """The arm with the best score that may be pulled; -1 where play may stop and all would lose."""
    score = jnp.where(bandit.access.allowed(bandit), score, -jnp.inf)
    arm = jnp.argmax(score)
    return jnp.where(jnp.max(score) >= 0, arm, -1) if bandit.access.may_stop else arm
