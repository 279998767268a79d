"""IRS.FH: the future reveals what T - 1 rewards of every arm would teach, not the truth itself."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from irsppl.bandit import Bandit
from irsppl.outcomes import Outcome
from irsppl.penalties._forms import TwoForms
from irsppl.penalties._payoffs import PerArm, PerPeriod
from irsppl.penalties.arrivals import at_each, counts_in_time, in_time, pending_of, ready
from irsppl.penalties.base import (
    CONJUGATE,
    MOST_QUADRATURES,
    exact_max_after,
    host_future_means,
    total_weight,
)


class FH(TwoForms):
    """A pull of arm a pays mu_hat_{a, T-1} (paper, eq. penalty-irs-fh).

    In general: its mean given every reward that some policy could know by the last decision. A
    delay leaves out those that would arrive later; a budget those that money could not buy beside
    this pull. form: where the horizon has a law, "sampled" reveals T with each future, "survivor"
    does not and weights periods by the chance that they are played; the first is tighter.
    """

    name: ClassVar[str] = "irs.fh"
    host_needs: ClassVar[frozenset[str] | None] = CONJUGATE
    grows: ClassVar[bool] = False
    serves: ClassVar[frozenset[str]] = frozenset({"delay", "budget", "horizon law"})

    def payoff(self, bandit: Bandit, outcome: Outcome) -> PerArm | PerPeriod:
        belief = outcome.belief or bandit.belief
        rewards, known = in_time(bandit, outcome, self.periods(bandit, outcome))
        future = belief.along(rewards)
        counts = self._counts(bandit, known, belief.is_independent)
        if len(counts) == 1:
            means = future.means(counts[0])
        else:
            means = jnp.diagonal(future.means(counts.T))
        weights = self.weights(bandit)
        if weights is None:
            return PerArm(means)
        return PerPeriod(weights[None, :] * means[:, None], weights > 0)

    def host_payoff(self, bandit: Bandit, outcomes: Outcome) -> PerArm:
        return PerArm(host_future_means(bandit, outcomes)[:, :, int(bandit.remaining) - 1])

    def decide(self, key: Array, bandit: Bandit) -> Array:
        # The sum of all rewards to come is drawn at once: O(K), whatever the horizon.
        if not bandit.constraints:
            known = bandit.remaining - 1
            if bandit.pending_counts is not None:
                known = known + bandit.pending_counts
            return jnp.argmax(bandit.belief.sample_future_means(key, known, bandit.size))
        survivor = self.form == "survivor"
        periods = None if survivor else bandit.end.sample(key, bandit, running=True)
        periods = bandit.remaining if periods is None else periods
        when = ready(bandit, bandit.arrivals.sample(key, bandit), bandit.size)
        independent = bandit.belief.is_independent
        counts = self._counts(bandit, counts_in_time(when, periods), independent)
        if len(counts) > 1:
            return jnp.asarray(self.inner(bandit, bandit.sample_outcome(key)).action)
        means = bandit.belief.sample_future_means(key, counts[0], bandit.size)
        return jnp.asarray(PerArm(means).solve(bandit, periods).action)

    def _counts(
        self, bandit: Bandit, known: Int[Array, "K N+1"], independent: bool
    ) -> Int[Array, "M K"]:
        """`[a, b]`: rewards of b that can be known at a pull of a; M = 1 where any a will do."""
        most = bandit.access.before(bandit)
        if independent and len(most) > 1:  # an arm's own rewards are all that matter
            most = jnp.diagonal(most)[None, :]
        return at_each(known, (most + pending_of(bandit)[None, :]).T).T

    def exact(self, bandit: Bandit) -> float | None:
        remaining = int(bandit.remaining)
        weights = bandit.period_weights()
        if weights is None or self.form == "survivor":
            best = exact_max_after(bandit, remaining - 1)
            return None if best is None else total_weight(bandit) * best
        if remaining > MOST_QUADRATURES:
            return None
        total = 0.0
        chances = weights - np.append(weights[1:], 0.0)  # P(T = 1), P(T = 2), ...
        for periods, chance in enumerate(chances, start=1):
            best = exact_max_after(bandit, periods - 1) if chance > 0 else 0.0
            if best is None:
                return None
            total += chance * periods * best
        return total
