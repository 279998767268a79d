"""Play an arm at random: the floor that every policy should beat."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from irsppl.bandit import Bandit
from irsppl.policies._base import Policy


class Random(Policy):
    """Every arm with probability 1 / K."""

    name: ClassVar[str] = "random"

    @property
    def serves(self) -> frozenset[str]:
        return frozenset({"delay", "budget", "horizon law"})

    def __call__(self, key: Array, bandit: Bandit) -> Array:
        if bandit.purse is not None:  # among the arms that can be paid
            return jax.random.categorical(key, jnp.where(bandit.purse.affordable(), 0.0, -jnp.inf))
        return jax.random.randint(key, (), 0, bandit.num_arms)
