"""Play an arm at random: the floor that every policy should beat."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from irsppl.bandit import Bandit
from irsppl.policies._base import Policy


class Random(Policy):
    """Every arm that may be pulled with the same probability."""

    name: ClassVar[str] = "random"
    serves: ClassVar[frozenset[str]] = frozenset({"delay", "budget", "horizon law"})

    def __call__(self, key: Array, bandit: Bandit) -> Array:
        if bandit.access.binds:
            allowed = bandit.access.allowed(bandit)
            return jax.random.categorical(key, jnp.where(allowed, 0.0, -jnp.inf))
        return jax.random.randint(key, (), 0, bandit.num_arms)
