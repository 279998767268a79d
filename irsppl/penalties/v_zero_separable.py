"""IRS.V-Zero-separable: V-Zero for many correlated arms; the other arms say all they can."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from irsppl.bandit import Bandit
from irsppl.beliefs import Belief, CorrelatedFuture, Future
from irsppl.outcomes import Outcome
from irsppl.penalties._payoffs import PerPull
from irsppl.penalties.arrivals import at_each, in_time, pending_of, periods_of
from irsppl.penalties.base import CONJUGATE, PayoffPenalty
from irsppl.penalties.v_zero import VZero


class VZeroSeparable(PayoffPenalty):
    """The n-th pull of arm a pays its mean given n - 1 own rewards and T - n of every other arm.

    At that moment no other arm can have been pulled more often, so what is revealed contains the
    history (dual feasible), and the payoff depends on (a, n) only: the allocation solves it, for
    any number of arms. Equal to V-Zero for independent arms without delays. Rewards that arrive
    after the last decision are left out; under a budget the other arms' rewards are those that
    the money left by n pulls of a could buy.
    """

    name: ClassVar[str] = "irs.v-zero-separable"
    host_needs: ClassVar[frozenset[str] | None] = CONJUGATE
    settles: ClassVar[bool] = True
    serves: ClassVar[frozenset[str]] = frozenset({"delay", "budget", "horizon law"})

    def payoff(self, bandit: Bandit, outcome: Outcome) -> PerPull:
        belief = outcome.belief or bandit.belief
        return PerPull(self._means(belief, bandit, outcome, periods_of(bandit, outcome)))

    def host_payoff(self, bandit: Bandit, outcomes: Outcome) -> PerPull:
        return VZero().host_payoff(bandit, outcomes)

    def _means(
        self, belief: Belief, bandit: Bandit, outcome: Outcome, periods: Array
    ) -> Float[Array, "K N"]:
        """What the n-th pull of each arm pays, n from 0."""
        rewards, known = in_time(bandit, outcome, periods)
        size = rewards.shape[1]
        n = jnp.arange(size)
        pending = pending_of(bandit)[:, None]
        own = at_each(known, pending + n[None, :])
        future = belief.along(rewards)
        if not isinstance(future, CorrelatedFuture):
            return at_each(future.own_means(), own)
        others = jnp.maximum(periods - 1 - n, 0)
        if bandit.budget is not None:
            return _bought(future, bandit, own, others, known)
        if not bandit.arrivals.late and bandit.pending_counts is None:
            return future.separable(own, jnp.minimum(others, size))[0]
        return future.separable(own, at_each(known, pending + others[None, :]))[0]


def _bought(
    future: Future, bandit: Bandit, own: Array, others: Array, known: Array
) -> Float[Array, "K N"]:
    """The same where the other arms' rewards must be paid from what is left."""
    purse = bandit.purse
    n, pending = jnp.arange(own.shape[1]), pending_of(bandit)

    def of_arm(arm: Array) -> Array:
        left = purse.money - (n + 1) * purse.costs[arm]
        most = jnp.minimum(purse.bought(left), others[:, None])  # [N, K]
        counts = at_each(known, (most + pending[None, :]).T)
        return future.means(counts.at[arm].set(own[arm]))[arm]

    return jax.vmap(of_arm)(jnp.arange(bandit.num_arms))
