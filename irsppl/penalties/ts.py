"""TS: the future reveals the arms' true means; the policy is Thompson sampling."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irsppl.bandit import Bandit
from irsppl.outcomes import Outcome
from irsppl.penalties._base import Inner, Penalty, exact_max_after, one_arm


class TS(Penalty):
    """A pull of arm a pays mu_a (paper, eq. penalty-ts)."""

    name: ClassVar[str] = "ts"
    grows: ClassVar[bool] = False

    def inner(self, bandit: Bandit, outcome: Outcome) -> Inner:
        return one_arm(outcome.means, bandit)

    def decide(self, key: Array, bandit: Bandit) -> Array:
        return jnp.argmax(bandit.belief.sample_means(key))

    def exact(self, bandit: Bandit) -> float | None:
        best = exact_max_after(bandit, None)
        return None if best is None else int(bandit.remaining) * best

    def values(self, bandit: Bandit, outcomes: Outcome) -> np.ndarray:
        return int(bandit.remaining) * np.asarray(outcomes.means, np.float64).max(axis=1)
