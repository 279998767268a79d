"""IRS.V-EMax: V-Zero, and charged as well for steering towards a favourable belief."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irsppl.bandit import Bandit
from irsppl.inner.lattice import check_size, solve_lattice
from irsppl.outcomes import Outcome
from irsppl.penalties._base import Inner, Penalty, future_means


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
        means = future_means(bandit, outcome)
        gamma = (outcome.belief or bandit.belief).lattice_expected_max(outcome.rewards)
        if bandit.pending_counts is not None:
            for axis in range(bandit.num_arms):
                gamma = jnp.roll(gamma, -bandit.pending_counts[axis], axis=axis)
        payoff = emax_payoffs(means, gamma, bandit.remaining)
        size = means.shape[1]
        value, sequence = solve_lattice(payoff, bandit.remaining, bandit.num_arms, size)
        pulls = jnp.sum(sequence[None, :] == jnp.arange(bandit.num_arms)[:, None], axis=1)
        return Inner(value, sequence[0], pulls, sequence)

    def values(self, bandit: Bandit, outcomes: Outcome) -> np.ndarray:
        kernel = bandit.belief.kernel_state()
        if kernel is None or bandit.num_arms != 2 or bandit.pending or kernel[0] > 1:
            return super().values(bandit, outcomes)
        from irsppl.inner.cpu.lattice import emax_batch_2

        rewards = np.asarray(outcomes.rewards)[:, :, : int(bandit.remaining)]
        return emax_batch_2(*kernel, np.ascontiguousarray(rewards))[0]


def emax_payoffs(
    means: Float[Array, "K N"], gamma: Float[Array, "..."], horizon: Array
) -> Float[Array, "K ..."]:
    """Payoff of one more pull of each arm at each count vector, `[K] + [N] * K`."""
    num_arms, size = means.shape
    counts = jnp.meshgrid(*[jnp.arange(size)] * num_arms, indexing="ij")
    left = (horizon - 1 - sum(counts)).astype(gamma.dtype)
    payoffs = []
    for arm in range(num_arms):
        shape = [1] * num_arms
        shape[arm] = size
        following = jnp.take(gamma, jnp.minimum(jnp.arange(size) + 1, size - 1), axis=arm)
        own = jnp.broadcast_to(means[arm].reshape(shape), gamma.shape)
        payoffs.append(own + left * (gamma - following))
    return jnp.stack(payoffs)
