"""Correlated arms: one set of weighted points for latents that the arms share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irsppl._checks import check_levels, host64, is_concrete
from irsppl.beliefs._base import Belief
from irsppl.beliefs._points import (
    PointPath,
    RewardTables,
    check_support,
    log_likelihoods,
    normalise,
    sample_rewards,
    value_likelihoods,
    why_impossible,
)
from irsppl.outcomes import Outcome

if TYPE_CHECKING:  # reading models loads NumPyro, which takes a second
    from irsppl.models import ArmModel, Params


class JointPoints(Belief):
    """N weighted points of the shared latents; a reward of any arm reweights them all."""

    mu: Float[Array, "N K"]  # mean reward of every arm at each point
    log_weights: Float[Array, " N"]
    params: Params  # leading axis N
    model: ArmModel = eqx.field(static=True)
    kind: str = eqx.field(static=True)
    reason: str = eqx.field(static=True)

    def __init__(self, model: ArmModel, params: Params, log_weights: Array, kind: str, reason: str):
        self.model, self.params, self.kind, self.reason = model, params, kind, reason
        self.mu = joint_means(model, params)
        self.log_weights = normalise(jnp.asarray(log_weights, self.mu.dtype))

    @property
    def num_arms(self) -> int:
        return self.mu.shape[1]

    @property
    def num_points(self) -> int:
        return self.mu.shape[0]

    @property
    def is_independent(self) -> bool:
        return False

    @property
    def weights(self) -> Float[Array, " N"]:
        return jnp.exp(self.log_weights)

    def __repr__(self) -> str:
        return (
            f"{self.kind} belief of {self.num_arms} correlated arms ({self.model.name}): "
            f"{self.num_points} points; {self.reason}"
        )

    # ---- the three questions
    def predictive_mean(self) -> Array:
        return self.weights @ self.mu

    def check_reward(self, arm: Any, reward: Any) -> None:
        if is_concrete(reward):
            check_support(self.model, reward)

    def _update(self, arm: Array, reward: Array) -> Self:
        reward = jnp.asarray(reward, self.mu.dtype)
        row = log_likelihoods(self.model, self.params, reward[None], arm)[0]
        return eqx.tree_at(lambda b: b.log_weights, self, normalise(self.log_weights + row))

    def _why_not_finite(self) -> str:
        return why_impossible(self.kind, self.num_points)

    def _sample(self, key: Array, horizon: int) -> Outcome:
        parameter_key, reward_key = jax.random.split(key)
        chosen = jax.random.categorical(parameter_key, self.log_weights)
        return self._outcome_at(chosen, reward_key, horizon)

    def _outcome_at(self, chosen: Array, key: Array, horizon: int) -> Outcome:
        own = jax.tree.map(lambda leaf: leaf[chosen], self.params)

        def draw(arm: Array) -> Array:
            return sample_rewards(self.model, jax.random.fold_in(key, arm), own, horizon, arm)

        rewards = jax.vmap(draw)(jnp.arange(self.num_arms))
        return Outcome(self.mu[chosen], rewards.astype(self.mu.dtype))

    # ---- along a future
    def _cumulative(self, rewards: Float[Array, "K T"]) -> Float[Array, "K T+1 N"]:
        """Log-likelihood of the first 0..T rewards of each arm at each point."""

        def own(arm: Array, row: Array) -> Array:
            return log_likelihoods(self.model, self.params, row, arm)

        lik = jax.vmap(own)(jnp.arange(self.num_arms), rewards)
        return jnp.pad(jnp.cumsum(lik, axis=1), ((0, 0), (1, 0), (0, 0)))

    def _posterior(self, log_lik: Float[Array, "... N"]) -> Float[Array, "... N"]:
        prior = self.log_weights.reshape((1,) * (log_lik.ndim - 1) + (-1,))
        return jax.nn.softmax(prior + log_lik, axis=-1)

    def path_means(self, rewards: Array) -> Array:
        """Given an arm's own rewards only: the arms' marginals."""
        return jnp.einsum("ktn,nk->kt", self._posterior(self._cumulative(rewards)), self.mu)

    def path(self, rewards: Array) -> PointPath:
        weights = self._posterior(self._cumulative(rewards))
        order = jnp.argsort(self.mu.T, axis=1)
        mu = jnp.take_along_axis(self.mu.T, order, axis=1)
        weights = jax.vmap(lambda w, o: w[:, o])(weights, order)
        return PointPath(
            self,
            rewards,
            mu,
            jnp.cumsum(weights * mu[:, None, :], axis=2),
            jnp.cumsum(weights, axis=2),
        )

    def path_expected_max(self, rewards: Array, lam: Array) -> Array:
        return self.path(rewards).expected_max(lam)

    def means_after(self, rewards: Array, counts: Array) -> Array:
        log_lik = self._cumulative(rewards)
        counts = jnp.broadcast_to(jnp.asarray(counts), (self.num_arms,))
        known = jax.vmap(lambda c, n: c[n])(log_lik, counts).sum(axis=0)
        return self._posterior(known) @ self.mu

    def feedback_means(self, rewards: Array) -> Array:
        return (self._posterior(self._cumulative(rewards).sum(axis=0)) @ self.mu).T

    def means_at(self, rewards: Array, counts: Array) -> Array:
        log_lik = self._cumulative(rewards)
        known = jax.vmap(lambda row, at: row[at])(log_lik, counts.T)  # [K, M, N]
        return self._posterior(known.sum(axis=0)) @ self.mu

    def separable_means(self, rewards: Array, own: Array, others: Array) -> Array:
        return jnp.einsum("ktn,nk->kt", self._separable(rewards, own, others), self.mu)

    def separable_moments(self, rewards: Array, own: Array, others: Array) -> tuple[Array, Array]:
        weights = self._separable(rewards, own, others)
        means = jnp.einsum("ktn,nk->kt", weights, self.mu)
        apart = self.mu.T[:, None, :] - means[:, :, None]
        return means, jnp.sqrt(jnp.sum(weights * apart**2, axis=-1))

    def _separable(self, rewards: Array, own: Array, others: Array) -> Float[Array, "K M N"]:
        log_lik = self._cumulative(rewards)
        take = jax.vmap(lambda row, at: row[at])  # [K, T+1, N], [K, M] -> [K, M, N]
        rest = take(log_lik, jnp.broadcast_to(others, own.shape))
        return self._posterior(take(log_lik, own) + rest.sum(axis=0)[None] - rest)

    def _lattice(self, rewards: Array) -> Float[Array, "... N"]:
        """Posterior weights at every vector of counts, `[T+1] * K + [N]`."""
        log_lik = self._cumulative(rewards)
        total = jnp.zeros((1,) * self.num_arms + (self.num_points,), self.mu.dtype)
        for arm in range(self.num_arms):
            shape = [1] * self.num_arms + [self.num_points]
            shape[arm] = log_lik.shape[1]
            total = total + log_lik[arm].reshape(shape)
        return self._posterior(total)

    def lattice_means(self, rewards: Array) -> Array:
        return jnp.moveaxis(self._lattice(rewards) @ self.mu, -1, 0)

    def lattice_expected_best(self, rewards: Array) -> Array:
        return self._lattice(rewards) @ self.mu.max(axis=1)

    # ---- of the unknown means
    def sample_means(self, key: Array) -> Array:
        return self.mu[jax.random.categorical(key, self.log_weights)]

    def sample_future_means(self, key: Array, n: Array, horizon: int) -> Array:
        return self.means_after(self._sample(key, horizon).rewards, n)

    def expected_max(self, lam: Any) -> Array:
        check_levels("lam", lam, self.num_arms)
        return self.weights @ jnp.maximum(self.mu, self._per_arm(lam))

    def cdf(self, x: Any) -> Array:
        check_levels("x", x, self.num_arms)
        return self.weights @ (self.mu <= self._per_arm(x)).astype(self.mu.dtype)

    def _per_arm(self, x: Any) -> Float[Array, "1 K"]:
        return jnp.broadcast_to(jnp.asarray(x, self.mu.dtype), (self.num_arms,))[None, :]

    def mean_sd(self) -> Array:
        spread = self.mu - self.predictive_mean()[None, :]
        return jnp.sqrt(self.weights @ spread**2)

    def effective_sample_size(self) -> Float[Array, ""]:
        return 1 / jnp.sum(self.weights**2)

    def reward_tables(self) -> RewardTables | None:
        if self.model.reward_values is None:
            return None
        values = np.asarray(self.model.reward_values, np.float64)
        rows = [
            value_likelihoods(self.model, self.params, values, arm) for arm in range(self.num_arms)
        ]
        likelihood = np.stack(rows, axis=1)
        if len(values) == 1:  # the recursion wants two: add one that never comes
            values = np.append(values, values[-1] + 1)
            likelihood = np.pad(likelihood, ((0, 0), (0, 0), (0, 1)))
        weights = np.exp(host64(self.log_weights))
        every = np.broadcast_to(values, (self.num_arms, len(values)))
        return RewardTables(weights / weights.sum(), likelihood, every)

    def footprint(self, horizon: int) -> int:
        return 3 * self.num_arms * (horizon + 1) * self.num_points

    def mean_max(self) -> Float[Array, ""]:
        """E[max_a mu_a]."""
        return self.weights @ self.mu.max(axis=1)


@eqx.filter_jit
def joint_means(model: ArmModel, params: Params) -> Float[Array, "N K"]:
    """Mean reward of every arm at every point."""
    arms = jnp.arange(model.num_arms)
    return jax.vmap(lambda p: jax.vmap(lambda a: model.mean(p, a))(arms))(params)


def joint_enumeration(model: ArmModel, reason: str) -> JointPoints:
    found = model.enumerate_latents()
    if found is None:
        raise ValueError(
            f"enumeration needs discrete latents with not too many values; {model.name} has "
            "others: use representation='particles'"
        )
    params, log_prior = found
    return JointPoints(model, params, jnp.asarray(np.asarray(log_prior)), "enumeration", reason)
