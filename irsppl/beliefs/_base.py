"""The contract of a belief, documented once.

A belief is an immutable pytree over all K arms. Everything downstream asks it only the questions
below, so that a new representation is one file. Arrays are `[K]` over arms; `N` is a number of
sampled rewards per arm.
"""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irsppl._checks import as_count, as_key, is_concrete
from irsppl.outcomes import Outcome

Law = Any  # a law of one number on the host: see irsppl.inner.laws


class Belief(eqx.Module):
    """What is believed of K arms."""

    # ---- what it is
    @property
    @abc.abstractmethod
    def num_arms(self) -> int:
        """K."""

    @property
    def is_independent(self) -> bool:
        """Whether a reward of one arm tells nothing of the others."""
        return True

    # ---- the three questions every solver asks
    @abc.abstractmethod
    def predictive_mean(self) -> Float[Array, " K"]:
        """Mean reward of the next pull of each arm."""

    @abc.abstractmethod
    def _update(self, arm: Array, reward: Array) -> Belief:
        """The posterior after one reward (scalars, maybe traced)."""

    @abc.abstractmethod
    def _sample(self, key: Array, horizon: int) -> Outcome:
        """A future with `horizon` rewards per arm; parameters and rewards from separate keys."""

    # ---- along a sampled future
    @abc.abstractmethod
    def path_means(self, rewards: Float[Array, "K N"]) -> Float[Array, "K N+1"]:
        """`[a, n]`: posterior mean of arm a after its own first n rewards."""

    @abc.abstractmethod
    def path_expected_max(
        self, rewards: Float[Array, "K N"], lam: Float[Array, " K"]
    ) -> Float[Array, "K N+1"]:
        """`[a, n]`: E[max(mu_a, lam_a)] after arm a's own first n rewards."""

    @abc.abstractmethod
    def lattice_expected_max(self, rewards: Float[Array, "K N"]) -> Float[Array, "..."]:
        """`[n_1, ..., n_K]`: E[max_a mu_a] given the first n_b rewards (0..N) of every arm b."""

    # ---- of the unknown means
    @abc.abstractmethod
    def sample_means(self, key: Array) -> Float[Array, " K"]:
        """One draw of the arms' mean rewards."""

    @abc.abstractmethod
    def sample_future_means(self, key: Array, n: Array) -> Float[Array, " K"]:
        """One draw of the posterior means after n more rewards of every arm; n may be traced."""

    @abc.abstractmethod
    def expected_max(self, lam: Any) -> Float[Array, " K"]:
        """E[max(mu_a, lam)]."""

    @abc.abstractmethod
    def cdf(self, x: Any) -> Float[Array, " K"]:
        """P(mu_a <= x)."""

    @abc.abstractmethod
    def mean_sd(self) -> Float[Array, " K"]:
        """A scale for mu_a (its standard deviation where that is finite)."""

    # ---- optional abilities; the defaults say "not this belief"
    def law(self, n: int | None) -> list[Law] | None:
        """Host float64 laws of the posterior mean of each arm after n rewards (None: of mu_a).

        None when there is no closed form: bounds are then sampled.
        """
        return None

    def finite_support(self) -> tuple[np.ndarray, np.ndarray] | None:
        """(Dirichlet parameters [K, C], values [C]) where rewards take finitely many values."""
        return None

    def natural_state(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Host (xi [K], nu [K]) when posterior means are (xi + sum of rewards) / (nu + n)."""
        return None

    def kernel_state(self) -> tuple[int, np.ndarray, np.ndarray, np.ndarray] | None:
        """(family code, xi, nu, noise_sd) for the compiled CPU kernels, or None."""
        return None

    def sample_rewards_at(self, key: Array, means: Array, horizon: int) -> Float[Array, "K N"]:
        """Rewards when the arms' true means are known (a fixed truth)."""
        raise ValueError(
            f"means= cannot be used with {type(self).__name__}: a mean does not determine the "
            "reward distribution there"
        )

    def check_reward(self, arm: Any, reward: Any) -> None:
        """Raise `ValueError` if a concrete reward is outside the support."""

    # ---- public, shared by all
    def update(self, arm: Any, reward: Any) -> Belief:
        """The belief after seeing `reward` from `arm`; arrays of both update in one call."""
        arms, rewards = np.shape(arm), np.shape(reward)
        if arms != rewards or len(arms) > 1:
            raise ValueError(
                "arm and reward must both be scalars, or arrays of one length, "
                f"got shapes {arms} and {rewards}"
            )
        self.check_arm(arm)
        self.check_reward(arm, reward)
        if not arms:
            return _update_one(self, jnp.asarray(arm), jnp.asarray(reward))
        return _update_many(self, jnp.asarray(arm), jnp.asarray(reward))

    def sample_outcome(self, key: Any, horizon: int) -> Outcome:
        """A future drawn from the belief: `.means [K]`, `.rewards [K, horizon]`."""
        return self._sample(as_key(key), as_count("horizon", horizon))

    def check_arm(self, arm: Any) -> None:
        if not is_concrete(arm):
            return
        host = np.asarray(arm)
        integral = np.issubdtype(host.dtype, np.integer)
        if not integral or np.any(host < 0) or np.any(host >= self.num_arms):
            raise ValueError(
                f"arm must be a whole number from 0 to {self.num_arms - 1}, got {host.tolist()}"
            )

    def to_arviz(self, key: Any = 0, num_draws: int = 1000) -> Any:
        """Draws of the arms' mean rewards, and predictive rewards, as ArviZ data."""
        from irsppl.results import belief_to_arviz

        return belief_to_arviz(self, as_key(key), as_count("num_draws", num_draws))


# Jitted at module level: a loop of updates compiles once per belief type and shape.
@eqx.filter_jit
def _update_one(belief: Belief, arm: Array, reward: Array) -> Belief:
    return belief._update(arm, reward)


@eqx.filter_jit
def _update_many(belief: Belief, arms: Array, rewards: Array) -> Belief:
    dynamic, static = eqx.partition(belief, eqx.is_array)

    def step(dynamic: Any, pull: tuple[Array, Array]) -> tuple[Any, None]:
        updated = eqx.combine(dynamic, static)._update(*pull)
        return eqx.filter(updated, eqx.is_array), None

    dynamic, _ = jax.lax.scan(step, dynamic, (arms, rewards))
    return eqx.combine(dynamic, static)
