"""The Lagrangian index policies, for Bernoulli arms."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irsppl._checks import is_concrete, one_of
from irsppl.bandit import Bandit
from irsppl.inner.lagrangian import decide, lagrangian_paths
from irsppl.penalties.lagrangian import check_plannable, solved_tables
from irsppl.policies._base import DecisionKernel, PathKernel, Policy, last_period


class LagrangianIndex(Policy):
    """The arm whose pull is worth most more than a rest, at the multipliers of the relaxation.

    Brown and Smith (2020), "Index policies and performance bounds for dynamic selection problems".
    tie: what to do when arms are worth the same: "random" (`lagr-rt`), or "optimal" (`lagr-ot`),
    as often as the relaxed problem's optimal mixture pulls them. The multipliers are those of the
    first bandit of a course of play, solved once; see `irsppl.inner.lagrangian`.
    """

    name: ClassVar[str] = "lagr"
    traceable: ClassVar[bool] = False
    tie: str = eqx.field(static=True)

    def __init__(self, tie: str = "random"):
        self.tie = one_of("tie", tie, ("random", "optimal"))

    @property
    def serves(self) -> frozenset[str]:
        return frozenset()  # its tables are for rewards that come at once and a known end

    def check(self, bandit: Bandit) -> None:
        check_plannable(bandit, "lagr-rt" if self.tie == "random" else "lagr-ot")

    def settled(self, bandit: Bandit) -> bool:
        means = np.sort(np.asarray(bandit.belief.predictive_mean()))  # a tie is drawn for
        return last_period(bandit) and (len(means) == 1 or means[-1] > means[-2])

    def __call__(self, key: Array, bandit: Bandit) -> Array:
        if not is_concrete(bandit):
            raise ValueError("lagr-rt and lagr-ot decide on the host: JAX cannot trace them")
        tables, successes, failures = solved_tables(bandit)
        seed = int(np.asarray(jax.random.bits(key, dtype=jnp.uint32)))
        return jnp.asarray(decide(tables, successes, failures, seed, self.tie), jnp.int32)

    def paths(self, bandit: Bandit) -> PathKernel:
        tables, successes, failures = solved_tables(bandit)
        return lambda rewards, seeds: lagrangian_paths(
            tables, rewards, seeds, self.tie, successes=successes, failures=failures
        )

    def decisions(self, bandit: Bandit) -> DecisionKernel:
        tables, successes, failures = solved_tables(bandit)
        return lambda seeds: np.array(
            [decide(tables, successes, failures, int(seed), self.tie) for seed in seeds], np.int16
        )
