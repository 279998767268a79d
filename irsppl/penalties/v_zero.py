"""IRS.V-Zero: a pull pays what its arm's earlier pulls have taught; allocate T pulls at best."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from irsppl.bandit import Bandit
from irsppl.beliefs import lattice
from irsppl.inner.lattice import check_size
from irsppl.outcomes import Outcome
from irsppl.penalties._forms import TwoForms
from irsppl.penalties._payoffs import PerCounts, PerPull
from irsppl.penalties.arrivals import at_each, by_arrival
from irsppl.penalties.base import CONJUGATE, host_future_means, lattice_after_pending


class VZero(TwoForms):
    """The n-th pull of arm a pays mu_hat_{a, n-1} (paper, eq. penalty-irs-vzero).

    Under a delay its policy plans on what will have arrived if an arm is pulled without a break;
    the bound would need the order of pulls, so `irs.v-zero-separable` gives that. The form
    "survivor" is tighter, but the order of pulls matters: small cases only.
    """

    name: ClassVar[str] = "irs.v-zero"
    host_needs: ClassVar[frozenset[str] | None] = CONJUGATE
    serves: ClassVar[frozenset[str]] = frozenset({"delay", "budget", "horizon law"})

    def check(self, bandit: Bandit) -> None:
        if self._over_counts(bandit):
            check_size(self.name, bandit.num_arms, bandit.size, "'irs.v-zero-separable'")
            if bandit.arrivals.late:
                raise ValueError(
                    f"{self.name} plans over counts of pulls here, which do not tell what a delay "
                    "has let through; use 'irs.v-zero-separable'"
                )

    def check_bound(self, bandit: Bandit) -> None:
        if bandit.arrivals.late:
            raise ValueError(
                f"{self.name} gives no bound under a delay, because what a pull pays would depend "
                "on the order of the pulls; use 'irs.v-zero-separable', 'irs.fh' or 'irs.ff'"
            )

    def _over_counts(self, bandit: Bandit) -> bool:
        """Correlated arms, or weights: what a pull pays depends on the counts of all arms."""
        return self.weights(bandit) is not None or not bandit.belief.is_independent

    def payoff(self, bandit: Bandit, outcome: Outcome) -> PerPull | PerCounts:
        belief = outcome.belief or bandit.belief
        if self._over_counts(bandit):
            rewards = outcome.rewards
            means = belief.along(rewards).means(lattice(bandit.num_arms, rewards.shape[1] + 1))
            each = lattice_after_pending(bandit, means, first=1)
            weights = self.weights(bandit)
            if weights is not None:
                each = each * at_periods(weights, each)
            return PerCounts(each, most_pulled=True)
        rewards, known = by_arrival(bandit, outcome)
        return PerPull(at_each(belief.along(rewards).own_means(), known[:, :-1]))

    def host_payoff(self, bandit: Bandit, outcomes: Outcome) -> PerPull:
        return PerPull(host_future_means(bandit, outcomes)[:, :, :-1])


def at_periods(weights: Float[Array, " N"], each: Float[Array, "K ..."]) -> Float[Array, "1 ..."]:
    """The weight of each point of the lattice of counts: its counts add to a period."""
    num_arms, size = each.shape[:2]
    period = sum(jnp.meshgrid(*[jnp.arange(size)] * num_arms, indexing="ij"))
    return jnp.take(weights, period, mode="fill", fill_value=0)[None]
