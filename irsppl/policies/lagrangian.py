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
from irsppl.penalties.lagrangian import check_plannable, solved_tables
from irsppl.policies._base import Policy, last_period


class LagrangianIndex(Policy):
    """The arm whose pull is worth most more than a rest, at the multipliers of the relaxation.

    Brown and Smith (2020), "Index policies and performance bounds for dynamic selection problems".
    tie: what to do when arms are worth the same: "random" (`lagr-rt`), or "optimal" (`lagr-ot`),
    as often as the relaxed problem's optimal mixture pulls them. The multipliers are those of the
    first bandit of a course of play, solved once; see `irsppl.inner.lagrangian`. Simulations and
    experiments say which it is (`first`); single decisions use what was solved lately.
    """

    name: ClassVar[str] = "lagr"
    # Its tables are for rewards that come at once and a known end.
    serves: ClassVar[frozenset[str]] = frozenset()
    traceable: ClassVar[bool] = False
    tie: str = eqx.field(static=True)
    first: Bandit | None

    def __init__(self, tie: str = "random", first: Bandit | None = None):
        self.tie = one_of("tie", tie, ("random", "optimal"))
        self.first = first

    def begun(self, bandit: Bandit) -> LagrangianIndex:
        return LagrangianIndex(self.tie, bandit)

    def check(self, bandit: Bandit) -> None:
        check_plannable(bandit, "lagr-rt" if self.tie == "random" else "lagr-ot")

    def settled(self, bandit: Bandit) -> bool:
        means = np.sort(np.asarray(bandit.belief.predictive_mean()))  # a tie is drawn for
        return last_period(bandit) and (len(means) == 1 or means[-1] > means[-2])

    def __call__(self, key: Array, bandit: Bandit) -> Array:
        if not is_concrete(bandit):
            raise ValueError("lagr-rt and lagr-ot decide on the host: JAX cannot trace them")
        tables, wins, losses = solved_tables(bandit, self.first)
        place = np.arange(bandit.num_arms), int(np.sum(wins + losses)), wins, losses
        index = tables.index_at(*place)
        tied = index >= index.max() - tables.tie_tolerance
        score, coin = np.asarray(jax.random.uniform(key, (2, bandit.num_arms)))
        if self.tie == "optimal":
            score = score + (coin < tables.pull_at(*place))
        return jnp.asarray(np.argmax(np.where(tied, score, -1)), jnp.int32)
