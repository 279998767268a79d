"""IRS.FF, full feedback: before period t the first t - 1 rewards of every arm are known."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from irsppl.bandit import Bandit
from irsppl.outcomes import Outcome
from irsppl.penalties._base import (
    Inner,
    Penalty,
    after_pending,
    exact_max_after,
    host_future_means,
)


class FF(Penalty):
    """W = sum_t E[max_a mu_hat_{a, t-1}]; its first action is myopic, so it is a bound only.

    Dual feasible because what it reveals at t contains the decision maker's own history then. At
    most W^FH, since at every t it reveals no more than FH does.
    """

    name: ClassVar[str] = "irs.ff"
    bound_only: ClassVar[bool] = True

    def inner(self, bandit: Bandit, outcome: Outcome) -> Inner:
        belief = outcome.belief or bandit.belief
        means = after_pending(bandit, belief.feedback_means(outcome.rewards))[:, :-1]
        playing = jnp.arange(means.shape[1]) < bandit.remaining
        arms = jnp.argmax(means, axis=0)
        value = jnp.sum(jnp.where(playing, means.max(axis=0), 0))
        sequence = jnp.where(playing, arms, -1)
        pulls = jnp.sum(sequence[None, :] == jnp.arange(bandit.num_arms)[:, None], axis=1)
        return Inner(value, arms[0], pulls, sequence)

    def exact(self, bandit: Bandit) -> float | None:
        total = 0.0
        for n in range(int(bandit.remaining)):
            best = exact_max_after(bandit, n)
            if best is None:
                return None
            total += best
        return total

    def values(self, bandit: Bandit, outcomes: Outcome) -> np.ndarray:
        means = host_future_means(bandit, outcomes)
        if means is None:
            return super().values(bandit, outcomes)
        return means[:, :, :-1].max(axis=1).sum(axis=1)
