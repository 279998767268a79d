"""Play an arm at random: the floor that every policy should beat."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from irsppl.bandit import Bandit
from irsppl.policies._base import PathKernel, Policy


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

    def paths(self, bandit: Bandit) -> PathKernel | None:
        return kernel_rule("random", bandit)


def kernel_rule(rule: str, bandit: Bandit) -> PathKernel | None:
    """The CPU path kernel's own rule of that name, where the belief has one."""
    state = bandit.belief.kernel_state()
    if state is None:
        return None
    from irsppl.inner.cpu.paths import simulate_paths

    return lambda rewards, seeds: simulate_paths(rule, *state, rewards, seeds)
