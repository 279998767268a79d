"""Play the arm with the best predictive mean: no exploration at all."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array

from irsppl.bandit import Bandit
from irsppl.policies._base import PathKernel, Policy
from irsppl.policies.random import kernel_rule


class Greedy(Policy):
    """The myopic arm, optimal only when one period is left."""

    name: ClassVar[str] = "greedy"
    deterministic: ClassVar[bool] = True

    def __call__(self, key: Array, bandit: Bandit) -> Array:
        return jnp.argmax(bandit.belief.predictive_mean())

    def paths(self, bandit: Bandit) -> PathKernel | None:
        return kernel_rule("greedy", bandit)
