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
    deterministic: ClassVar[bool] = True

    @property
    def serves(self) -> frozenset[str]:
        return frozenset({"delay", "budget", "horizon law"})

    def __call__(self, key: Array, bandit: Bandit) -> Array:
        mean = bandit.belief.predictive_mean()
        if bandit.purse is not None:
            return best_affordable(bandit, mean)
        return jnp.argmax(mean)


def best_affordable(bandit: Bandit, score: Float[Array, " K"]) -> Int[Array, ""]:
    """The arm with the best score that can be paid; -1, to stop, where all would lose."""
    assert bandit.purse is not None
    score = jnp.where(bandit.purse.affordable(), score, -jnp.inf)
    return jnp.where(jnp.max(score) >= 0, jnp.argmax(score), -1)
