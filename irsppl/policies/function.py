"""A user's own function as a policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from irsppl.bandit import Bandit
from irsppl.policies._base import Policy


class FunctionPolicy(Policy):
    """`function(key, bandit) -> arm`, traceable by JAX; -1 stops where there is a budget."""

    name: ClassVar[str] = "function"
    function: Callable[[Array, Bandit], Any] = eqx.field(static=True)

    @property
    def serves(self) -> frozenset[str]:
        return frozenset({"delay", "budget", "horizon law"})

    def __call__(self, key: Array, bandit: Bandit) -> Array:
        arm = jnp.asarray(self.function(key, bandit))
        if arm.shape != () or not jnp.issubdtype(arm.dtype, jnp.integer):
            raise ValueError(
                "a policy must return one arm (a whole number), got an array of shape "
                f"{arm.shape} and dtype {arm.dtype}"
            )
        return arm

    @property
    def grows(self) -> bool:
        return False
