"""TS: the future reveals the arms' true means; the policy is Thompson sampling."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irsppl.bandit import Bandit
from irsppl.outcomes import Outcome
from irsppl.penalties._base import Inner, Penalty, exact_max_after, one_arm, total_weight
from irsppl.penalties._reveal import periods_of
from irsppl.penalties._spend import spend


class TS(Penalty):
    """A pull of arm a pays mu_a (paper, eq. penalty-ts)."""

    name: ClassVar[str] = "ts"
    on_host: ClassVar[bool] = True
    grows: ClassVar[bool] = False
    serves: ClassVar[frozenset[str]] = frozenset({"delay", "budget", "horizon law"})

    def inner(self, bandit: Bandit, outcome: Outcome) -> Inner:
        if bandit.purse is not None:
            return spend(bandit, "constant", outcome.means)
        return one_arm(outcome.means, periods_of(bandit, outcome))

    def decide(self, key: Array, bandit: Bandit) -> Array:
        means = bandit.belief.sample_means(key)
        if bandit.purse is not None:
            return jnp.asarray(spend(bandit, "constant", means).action)
        return jnp.argmax(means)

    def spends(self, bandit: Bandit) -> str:
        return "constant"

    def spending(self, bandit: Bandit, outcome: Outcome) -> Array:
        return outcome.means

    def exact(self, bandit: Bandit) -> float | None:
        if bandit.purse is not None:
            return None
        best = exact_max_after(bandit, None)
        return None if best is None else total_weight(bandit) * best

    def values(self, bandit: Bandit, outcomes: Outcome) -> np.ndarray:
        if bandit.purse is not None:
            return super().values(bandit, outcomes)
        best = np.asarray(outcomes.means, np.float64).max(axis=1)
        return np.asarray(periods_of(bandit, outcomes)) * best
