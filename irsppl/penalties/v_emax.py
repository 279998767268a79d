"""IRS.V-EMax: V-Zero, and charged as well for steering towards a favourable belief."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irsppl._fields import changed
from irsppl.bandit import Bandit
from irsppl.beliefs import InKernels, lattice
from irsppl.inner.lattice import check_size
from irsppl.outcomes import Outcome
from irsppl.penalties._forms import TwoForms
from irsppl.penalties._payoffs import Inner, PerCounts
from irsppl.penalties.base import PLAIN, lattice_after_pending
from irsppl.penalties.v_zero import at_periods


class VEMax(TwoForms):
    """Ideal penalty with W^TS in place of V* (paper, eq. penalty-irs-vemax).

    Pulling a at counts n, t = sum n, pays mu_hat_{a, n_a} + (T-t-1) (Gamma(n) - Gamma(n + e_a)),
    Gamma(n) = E[max_a mu_a | n]; the order of pulls matters, so the state is the count vector.
    The form "survivor" pays w_t mu_hat + (w_{t+1} + ...) (Gamma - Gamma'), w_t the chance of t.
    """

    name: ClassVar[str] = "irs.v-emax"
    host_needs: ClassVar[frozenset[str] | None] = PLAIN | {"pair"}
    plain: ClassVar[bool] = True
    serves: ClassVar[frozenset[str]] = frozenset({"horizon law"})

    def check(self, bandit: Bandit) -> None:
        check_size(self.name, bandit.num_arms, bandit.size)

    def payoff(self, bandit: Bandit, outcome: Outcome) -> PerCounts:
        """Less what all pulls pay alike, which `inner` adds: the differences need the digits."""
        return self._centred(bandit, outcome)[0]

    def inner(self, bandit: Bandit, outcome: Outcome) -> Inner:
        payoff, level, times = self._centred(bandit, outcome)
        found = payoff.solve(bandit, self.periods(bandit, outcome))
        return changed(found, value=found.value + level * times)

    def traced_values(self, bandit: Bandit, outcomes: Outcome) -> np.ndarray:
        values, level, times = (np.asarray(x, np.float64) for x in _values(self, bandit, outcomes))
        return values + level * times

    def _centred(self, bandit: Bandit, outcome: Outcome) -> tuple[PerCounts, Array, Array]:
        """Payoffs, what every pull pays besides, and how many pulls there are (or their weight)."""
        belief = outcome.belief or bandit.belief
        future, level = belief.along_centred(outcome.rewards)
        size = outcome.rewards.shape[1] + 1
        means = lattice_after_pending(bandit, future.means(lattice(bandit.num_arms, size)), first=1)
        gamma = lattice_after_pending(bandit, future.expected_best())
        weights = self.weights(bandit)
        period = sum(jnp.meshgrid(*[jnp.arange(size)] * bandit.num_arms, indexing="ij"))
        times = self.periods(bandit, outcome)
        left = (times - 1 - period).astype(gamma.dtype)
        if weights is not None:
            times = jnp.sum(jnp.where(jnp.arange(len(weights)) < times, weights, 0))
            later = jnp.cumsum(weights[::-1])[::-1] - weights
            left = jnp.take(later, period, mode="fill", fill_value=0)
            means = means * at_periods(weights, means)
        payoffs = []
        for arm in range(bandit.num_arms):
            following = jnp.take(gamma, jnp.minimum(jnp.arange(size) + 1, size - 1), axis=arm)
            payoffs.append(means[arm] + left * (gamma - following))
        return PerCounts(jnp.stack(payoffs)), jnp.asarray(level), times

    def host_values(self, bandit: Bandit, outcomes: Outcome) -> np.ndarray:
        from irsppl.inner.cpu.emax import emax_batch_2

        belief = bandit.belief
        assert isinstance(belief, InKernels)
        rewards = np.asarray(outcomes.rewards)[:, :, : int(bandit.remaining)]
        return emax_batch_2(*belief.kernel_state(), np.ascontiguousarray(rewards))[0]


@eqx.filter_jit
def _values(penalty: VEMax, bandit: Bandit, outcomes: Outcome) -> tuple[Array, Array, Array]:
    def one(outcome: Outcome) -> tuple[Array, Array, Array]:
        payoff, level, times = penalty._centred(bandit, outcome)
        found = payoff.solve(bandit, penalty.periods(bandit, outcome))
        return jnp.asarray(found.value), level, times

    return jax.vmap(one)(outcomes)
