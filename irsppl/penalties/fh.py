"""IRS.FH: the future reveals what T - 1 rewards of every arm would teach, not the truth itself."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irsppl.bandit import Bandit
from irsppl.outcomes import Outcome
from irsppl.penalties._base import (
    Inner,
    Penalty,
    exact_max_after,
    host_future_means,
    one_arm,
)


class FH(Penalty):
    """A pull of arm a pays mu_hat_{a, T-1} (paper, eq. penalty-irs-fh)."""

    name: ClassVar[str] = "irs.fh"
    grows: ClassVar[bool] = False

    def inner(self, bandit: Bandit, outcome: Outcome) -> Inner:
        known = bandit.remaining - 1
        if bandit.pending_counts is not None:
            known = known + bandit.pending_counts
        belief = outcome.belief or bandit.belief
        return one_arm(belief.means_after(outcome.rewards, known), bandit)

    def decide(self, key: Array, bandit: Bandit) -> Array:
        # The sum of T - 1 rewards is drawn at once: O(K), whatever the horizon.
        rewards = bandit.remaining - 1
        if bandit.pending_counts is not None:
            rewards = rewards + bandit.pending_counts
        return jnp.argmax(bandit.belief.sample_future_means(key, rewards, bandit.horizon))

    def exact(self, bandit: Bandit) -> float | None:
        remaining = int(bandit.remaining)
        best = exact_max_after(bandit, remaining - 1)
        return None if best is None else remaining * best

    def values(self, bandit: Bandit, outcomes: Outcome) -> np.ndarray:
        means = host_future_means(bandit, outcomes)
        if means is None:
            return super().values(bandit, outcomes)
        remaining = int(bandit.remaining)
        return remaining * means[:, :, remaining - 1].max(axis=1)
