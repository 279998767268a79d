"""IRS.FF, full feedback: before period t the first t - 1 rewards of every arm are known."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from irsppl.bandit import Bandit
from irsppl.budgets import Purse
from irsppl.outcomes import Outcome
from irsppl.penalties._payoffs import PerMoney, PerPeriod
from irsppl.penalties.arrivals import by_arrival, pending_of
from irsppl.penalties.base import (
    CONJUGATE,
    MOST_QUADRATURES,
    PayoffPenalty,
    after_pending,
    exact_max_after,
    host_future_means,
)


class FF(PayoffPenalty):
    """W = sum_t E[max_a mu_hat_{a, t-1}]; its first action is myopic, so it is a bound only.

    Dual feasible because what it reveals at t contains the decision maker's own history then. At
    most W^FH, since at every t it reveals no more than FH does.

    Under a budget the clock is the money spent: after s of it, s / c_b rewards of arm b at most.
    An unknown horizon weights each period by the chance that it is played.
    """

    name: ClassVar[str] = "irs.ff"
    host_needs: ClassVar[frozenset[str] | None] = CONJUGATE
    bound_only: ClassVar[bool] = True
    serves: ClassVar[frozenset[str]] = frozenset({"delay", "budget", "horizon law"})

    def check(self, bandit: Bandit) -> None:
        if bandit.budget is not None and bandit.arrivals.missed(bandit.num_arms) is None:
            raise ValueError(
                f"{self.name} with a budget needs a fixed delay, not a random one; use 'irs.fh'"
            )

    def payoff(self, bandit: Bandit, outcome: Outcome) -> PerPeriod | PerMoney:
        if bandit.budget is not None:
            return self._per_money(bandit, bandit.purse, outcome)
        belief = outcome.belief or bandit.belief
        if not bandit.arrivals.late:
            num_arms, size = outcome.rewards.shape
            every = np.broadcast_to(np.arange(size + 1), (num_arms, size + 1))
            means = after_pending(bandit, belief.along(outcome.rewards).means(every))[:, :-1]
        else:
            rewards, known = by_arrival(bandit, outcome)
            means = belief.along(rewards).means(known[:, :-1])
        weights = bandit.end.weights(bandit).astype(means.dtype)[: means.shape[1]]
        return PerPeriod(weights[None, :] * means, weights > 0)

    def _per_money(self, bandit: Bandit, purse: Purse, outcome: Outcome) -> PerMoney:
        belief = outcome.belief or bandit.belief
        spent = jnp.arange(purse.cells + 1)
        known = spent[:, None] // purse.grid_costs[None, :]  # [cells + 1, K]
        known = known + pending_of(bandit)[None, :]
        by_period = purse.capped or bandit.arrivals.late
        rewards = outcome.rewards
        if by_period:
            # Fixed delays keep an arm's rewards in order, so the two limits are one: the smaller.
            rewards, arrived = by_arrival(bandit, outcome)
            known = jnp.minimum(known[None, :, :], arrived[:, :-1].T[:, None, :])
        known = jnp.minimum(known, rewards.shape[1])
        return PerMoney(belief.along(rewards).means(jnp.moveaxis(known, -1, 0)), by_period)

    def exact(self, bandit: Bandit) -> float | None:
        if int(bandit.remaining) > MOST_QUADRATURES:
            return None
        weights = bandit.period_weights()
        total = 0.0
        for n in range(int(bandit.remaining)):
            best = exact_max_after(bandit, n)
            if best is None:
                return None
            total += best if weights is None else weights[n] * best
        return total

    def host_payoff(self, bandit: Bandit, outcomes: Outcome) -> PerPeriod:
        means = host_future_means(bandit, outcomes)
        return PerPeriod(means[:, :, :-1], np.ones((len(means), means.shape[2] - 1), bool))
