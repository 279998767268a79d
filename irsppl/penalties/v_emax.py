"""IRS.V-EMax: V-Zero, and charged as well for steering towards a favourable belief."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irsppl.bandit import Bandit
from irsppl.inner.lattice import check_size
from irsppl.outcomes import Outcome
from irsppl.penalties._base import Inner, Penalty, inner_of_sequence, lattice_after_pending


class VEMax(Penalty):
    """Ideal penalty with W^TS in place of V* (paper, eq. penalty-irs-vemax).

    Pulling a at counts n, t = sum n, pays mu_hat_{a, n_a} + (T-t-1) (Gamma(n) - Gamma(n + e_a)),
    Gamma(n) = E[max_a mu_a | n]; the order of pulls matters, so the state is the count vector.
    """

    name: ClassVar[str] = "irs.v-emax"
    plain: ClassVar[bool] = True

    def check(self, bandit: Bandit) -> None:
        check_size(self.name, bandit.num_arms, bandit.horizon)

    def inner(self, bandit: Bandit, outcome: Outcome) -> Inner:
        belief = outcome.belief or bandit.belief
        means = lattice_after_pending(bandit, belief.lattice_means(outcome.rewards), first=1)
        gamma = lattice_after_pending(bandit, belief.lattice_expected_max(outcome.rewards))
        return inner_of_sequence(bandit, emax_payoffs(means, gamma, bandit.remaining))

    def values(self, bandit: Bandit, outcomes: Outcome) -> np.ndarray:
        kernel = bandit.belief.kernel_state()
        if kernel is None or bandit.num_arms != 2 or bandit.pending or kernel[0] > 1:
            return super().values(bandit, outcomes)
        from irsppl.inner.cpu.lattice import emax_batch_2

        rewards = np.asarray(outcomes.rewards)[:, :, : int(bandit.remaining)]
        return emax_batch_2(*kernel, np.ascontiguousarray(rewards))[0]


def emax_payoffs(
    means: Float[Array, "K ..."], gamma: Float[Array, "..."], horizon: Array
) -> Float[Array, "K ..."]:
    """Payoff of one more pull of each arm at each count vector, `[K] + [N] * K`."""
    num_arms, size = means.shape[:2]
    counts = jnp.meshgrid(*[jnp.arange(size)] * num_arms, indexing="ij")
    left = (horizon - 1 - sum(counts)).astype(gamma.dtype)
    payoffs = []
    for arm in range(num_arms):
        following = jnp.take(gamma, jnp.minimum(jnp.arange(size) + 1, size - 1), axis=arm)
        payoffs.append(means[arm] + left * (gamma - following))
    return jnp.stack(payoffs)
