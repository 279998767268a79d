"""TS: the future reveals the arms' true means; the policy is Thompson sampling."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irsppl.bandit import Bandit
from irsppl.outcomes import Outcome
from irsppl.penalties._payoffs import PerArm
from irsppl.penalties.base import ANYWHERE, PayoffPenalty, exact_max_after, total_weight


class TS(PayoffPenalty):
    """A pull of arm a pays mu_a (paper, eq. penalty-ts)."""

    name: ClassVar[str] = "ts"
    host_needs: ClassVar[frozenset[str] | None] = ANYWHERE
    grows: ClassVar[bool] = False
    reads_rewards: ClassVar[bool] = False
    serves: ClassVar[frozenset[str]] = frozenset({"delay", "budget", "horizon law"})

    def payoff(self, bandit: Bandit, outcome: Outcome) -> PerArm:
        return PerArm(outcome.means)

    def host_payoff(self, bandit: Bandit, outcomes: Outcome) -> PerArm:
        return PerArm(np.asarray(outcomes.means))

    def decide(self, key: Array, bandit: Bandit) -> Array:
        means = PerArm(bandit.belief.sample_means(key))
        return jnp.asarray(means.solve(bandit, bandit.remaining).action)

    def exact(self, bandit: Bandit) -> float | None:
        best = exact_max_after(bandit, None)
        return None if best is None else total_weight(bandit) * best
