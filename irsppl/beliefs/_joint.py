"""Correlated arms: one set of weighted points for latents that the arms share."""

from __future__ import annotations

from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irsppl._checks import host64, is_concrete
from irsppl.beliefs._abilities import RewardTables
from irsppl.beliefs._future import CorrelatedFuture, Counts, at_counts, lattice
from irsppl.beliefs._point_future import SortedSums
from irsppl.beliefs._points import (
    PointBelief,
    check_support,
    log_likelihoods,
    normalise,
    sample_rewards,
    value_likelihoods,
)
from irsppl.beliefs._types import ArmModel, Params
from irsppl.outcomes import Outcome


class JointPoints(PointBelief):
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
    def parts(self) -> tuple[tuple[ArmModel, tuple[int, ...]], ...]:
        return ((self.model, tuple(range(self.num_arms))),)

    @property
    def is_independent(self) -> bool:
        return False

    def __repr__(self) -> str:
        return (
            f"{self.kind} belief of {self.num_arms} correlated arms ({self.model.name}): "
            f"{self.num_points} points; {self.reason}"
        )

    def _averaged(self, values: Array) -> Array:
        return self.weights @ values

    def _per_arm(self, x: Any) -> Float[Array, "1 K"]:
        return jnp.broadcast_to(jnp.asarray(x, self.mu.dtype), (self.num_arms,))[None, :]

    def check_reward(self, arm: Any, reward: Any) -> None:
        if is_concrete(reward):
            check_support(self.model, reward)

    def given(self, arm: Array, reward: Array) -> Self:
        reward = jnp.asarray(reward, self.mu.dtype)
        row = log_likelihoods(self.model, self.params, reward[None], arm)[0]
        return eqx.tree_at(lambda b: b.log_weights, self, normalise(self.log_weights + row))

    def outcome_at(self, chosen: Array, key: Array, horizon: int) -> Outcome:
        own = jax.tree.map(lambda leaf: leaf[chosen], self.params)

        def draw(arm: Array) -> Array:
            return sample_rewards(self.model, jax.random.fold_in(key, arm), own, horizon, arm)

        rewards = jax.vmap(draw)(jnp.arange(self.num_arms))
        return Outcome(self.mu[chosen], rewards.astype(self.mu.dtype))

    def along(self, rewards: Float[Array, "K T"]) -> JointFuture:
        return JointFuture(self, rewards)

    # ---- of the unknown means
    def sample_means(self, key: Array) -> Array:
        return self.mu[jax.random.categorical(key, self.log_weights)]

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

    def mean_max(self) -> Array:
        return self.weights @ self.mu.max(axis=1)


class JointFuture(CorrelatedFuture):
    """Log-likelihoods add up over arms: a vector of counts is a sum of K rows of one table."""

    mu: Float[Array, "N K"]
    log_weights: Float[Array, " N"]  # before the first reward
    log_likelihoods: Float[Array, "K T+1 N"]  # of the first 0..T rewards of each arm together
    sums: SortedSums  # of each arm's own rewards

    def __init__(self, belief: JointPoints, rewards: Float[Array, "K T"]):
        self.mu, self.log_weights = belief.mu, belief.log_weights

        def own(arm: Array, row: Array) -> Array:
            return log_likelihoods(belief.model, belief.params, row, arm)

        each = jax.vmap(own)(jnp.arange(belief.num_arms), rewards)
        self.log_likelihoods = jnp.pad(jnp.cumsum(each, axis=1), ((0, 0), (1, 0), (0, 0)))
        order = jnp.argsort(self.mu.T, axis=1)
        mu = jnp.take_along_axis(self.mu.T, order, axis=1)
        weights = jax.vmap(lambda w, o: w[:, o])(self._posterior(self.log_likelihoods), order)
        self.sums = SortedSums(mu, weights)

    def _posterior(self, log_lik: Float[Array, "... N"]) -> Float[Array, "... N"]:
        prior = self.log_weights.reshape((1,) * (log_lik.ndim - 1) + (-1,))
        return jax.nn.softmax(prior + log_lik, axis=-1)

    def _weights(self, counts: Counts) -> Float[Array, "... N"]:
        found = at_counts(self.log_likelihoods, counts)
        return self._posterior(
            jnp.asarray(sum(found)) if isinstance(found, list) else found.sum(axis=0)
        )

    def means(self, counts: Counts) -> Array:
        return jnp.moveaxis(self._weights(counts) @ self.mu, -1, 0)

    def own_means(self) -> Array:
        return jnp.einsum("ktn,nk->kt", self._posterior(self.log_likelihoods), self.mu)

    def expected_max(self, lam: Array) -> Array:
        return self.sums.expected_max(lam)

    def expected_best(self) -> Array:
        grid = lattice(*self.log_likelihoods.shape[:2])
        return self._weights(grid) @ self.mu.max(axis=1)

    def separable(self, own: Array, others: Array) -> tuple[Array, Array]:
        mine = at_counts(self.log_likelihoods, own)
        rest = at_counts(self.log_likelihoods, jnp.broadcast_to(others, own.shape))
        weights = self._posterior(mine + rest.sum(axis=0)[None] - rest)
        means = jnp.einsum("ktn,nk->kt", weights, self.mu)
        apart = self.mu.T[:, None, :] - means[:, :, None]
        return means, jnp.sqrt(jnp.sum(weights * apart**2, axis=-1))


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
