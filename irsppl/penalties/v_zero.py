"""IRS.V-Zero: a pull pays what its arm's earlier pulls have taught; allocate T pulls at best."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from irsppl.bandit import Bandit
from irsppl.inner.allocation import allocate, allocate_batch
from irsppl.inner.lattice import check_size
from irsppl.outcomes import Outcome
from irsppl.penalties._base import (
    Inner,
    Penalty,
    future_means,
    host_future_means,
    inner_of_sequence,
    lattice_after_pending,
)


class VZero(Penalty):
    """The n-th pull of arm a pays mu_hat_{a, n-1} (paper, eq. penalty-irs-vzero)."""

    name: ClassVar[str] = "irs.v-zero"

    def check(self, bandit: Bandit) -> None:
        if not bandit.belief.is_independent:
            check_size(self.name, bandit.num_arms, bandit.horizon, "'irs.v-zero-separable'")

    def inner(self, bandit: Bandit, outcome: Outcome) -> Inner:
        if not bandit.belief.is_independent:
            return self._over_counts(bandit, outcome)
        means = future_means(bandit, outcome)[:, :-1]
        payoffs = jnp.pad(jnp.cumsum(means, axis=1), ((0, 0), (1, 0)))
        value, pulls = allocate(payoffs, bandit.remaining)
        # Any arm with a pull would be a first action; the most pulled one makes it like TS for
        # long horizons (paper, Proposition on asymptotic behaviour).
        return Inner(value, jnp.argmax(pulls), pulls)

    def _over_counts(self, bandit: Bandit, outcome: Outcome) -> Inner:
        """Correlated arms: what a pull pays depends on the counts of all arms."""
        belief = outcome.belief or bandit.belief
        payoff = lattice_after_pending(bandit, belief.lattice_means(outcome.rewards), first=1)
        return inner_of_sequence(bandit, payoff, most_pulled=True)

    def values(self, bandit: Bandit, outcomes: Outcome) -> np.ndarray:
        means = host_future_means(bandit, outcomes)
        if means is None:
            return super().values(bandit, outcomes)
        payoffs = np.zeros_like(means)
        np.cumsum(means[:, :, :-1], axis=2, out=payoffs[:, :, 1:])
        return allocate_batch(payoffs)[0]
