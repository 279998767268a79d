"""OPT: the Bayes-optimal policy, by the Bellman recursion, where the set of beliefs is finite."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array

from irsppl._checks import is_concrete
from irsppl.bandit import Bandit
from irsppl.penalties.ideal import optimal_table
from irsppl.policies._base import Policy


class Opt(Policy):
    """Maximises the expected total reward; rewards must take finitely many values.

    Played on from its first period a conjugate bandit needs no new table; point beliefs are solved
    anew at every decision, for the periods that remain.
    """

    name: ClassVar[str] = "opt"
    serves: ClassVar[frozenset[str]] = frozenset({"horizon law"})
    deterministic: ClassVar[bool] = True
    traceable: ClassVar[bool] = False

    def check(self, bandit: Bandit) -> None:
        optimal_table(bandit, from_root=False)

    def __call__(self, key: Array, bandit: Bandit) -> Array:
        if not is_concrete(bandit):
            raise ValueError("opt decides on the host: it cannot be traced by JAX")
        table, counts = optimal_table(bandit, from_root=False)
        return jnp.asarray(table.action(counts), jnp.int32)
