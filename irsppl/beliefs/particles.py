"""Particles: any NumPyro model, as a randomised cloud of weighted points.

A bound is valid for the user's prior at every number of particles because each sampled future
brings a fresh randomised set with its own parameter among it: posterior means within that set are
true conditional expectations. In play, a cloud whose weights have degenerated is resampled and
moved by MCMC on the posterior given all data so far; a reward that would collapse the weights is
brought in by steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from irsppl._checks import is_concrete
from irsppl.beliefs._base import Belief
from irsppl.beliefs._joint import JointPoints, joint_means
from irsppl.beliefs._points import Points
from irsppl.beliefs._rejuvenation import bring_in, can_move, kronecker
from irsppl.models import ArmModel, Params
from irsppl.outcomes import Outcome

DEFAULT_PARTICLES = 1024
_BUFFER = 512
_LEAST_ESS = 0.5  # of the number of particles; below it the cloud is moved


def draw_set(model: ArmModel, key: Array, count: int) -> Params:
    """A randomised set of `count` points, each of which alone follows the prior.

    Evenly spread: strata in one dimension, a randomly shifted Kronecker lattice in more; plain
    draws where a prior has no inverse CDF.
    """
    if not model.has_icdf:
        return jax.vmap(model.sample_prior)(jax.random.split(key, count))
    dim = model.num_uniforms
    if dim == 1:
        jitter = jax.random.uniform(key, (count, 1))
        uniforms = (jnp.arange(count)[:, None] + jitter) / count
    else:
        shift = jax.random.uniform(key, (1, dim))
        uniforms = (jnp.asarray(kronecker(count, dim), shift.dtype) + shift) % 1
    tiny = float(jnp.finfo(uniforms.dtype).eps)
    points = jax.vmap(model.prior_from_uniforms)(jnp.clip(uniforms, tiny, 1 - tiny))
    assert points is not None  # has_icdf
    return points


class Particles(Points):
    """Independent arms: each has its own cloud and its own record of rewards."""

    rewards: Float[Array, "K B"]  # what has been seen, padded with a possible reward
    seen: Int[Array, " K"]
    key: Array
    rejuvenations: Int[Array, " K"]  # moves so far
    tempered: Int[Array, " K"]  # rewards so far that took several moves
    acceptance: Float[Array, " K"]  # of the last rejuvenation, NaN before the first
    at_prior: bool = eqx.field(static=True)
    moving: bool = eqx.field(static=True)

    def __init__(
        self,
        models: Sequence[ArmModel],
        groups: Sequence[Sequence[int]],
        num_particles: int,
        key: Array,
        reason: str,
    ):
        set_key, self.key = jax.random.split(key)
        params = [
            _group_sets(m, g, jax.random.fold_in(set_key, i), num_particles)
            for i, (m, g) in enumerate(zip(models, groups, strict=True))
        ]
        even = [jnp.zeros((len(group), num_particles)) for group in groups]
        super().__init__(models, groups, params, even, "particle", reason)
        inside = np.zeros(self.num_arms)
        for model, group in zip(models, groups, strict=True):
            inside[list(group)] = model.support.inside
        self.rewards = jnp.tile(jnp.asarray(inside, self.mu.dtype)[:, None], (1, _BUFFER))
        self.seen = jnp.zeros(self.num_arms, jnp.int32)
        self.rejuvenations = jnp.zeros(self.num_arms, jnp.int32)
        self.tempered = jnp.zeros(self.num_arms, jnp.int32)
        self.acceptance = jnp.full(self.num_arms, jnp.nan, self.mu.dtype)
        self.at_prior, self.moving = True, True

    @property
    def is_approximate(self) -> bool:
        return not self.at_prior

    def _sample_truth(self, key: Array, horizon: int) -> Outcome:
        if not self.at_prior:
            return self._sample(key, horizon)
        set_key, chosen_key, reward_key = jax.random.split(key, 3)
        params = [
            _group_sets(m, g, jax.random.fold_in(set_key, i), self.num_points)
            for i, (m, g) in enumerate(zip(self.models, self.groups, strict=True))
        ]
        even = [jnp.zeros((len(group), self.num_points)) for group in self.groups]
        fresh = Points(self.models, self.groups, params, even, self.kind, self.reason)
        chosen = jax.random.randint(chosen_key, (self.num_arms,), 0, self.num_points)
        outcome = fresh._outcome_at(chosen, reward_key, horizon)
        return eqx.tree_at(lambda o: o.belief, outcome, fresh, is_leaf=lambda x: x is None)

    def law(self, n: int | None) -> None:
        return None  # exact for the cloud, not for the prior that it stands for

    def in_play(self) -> Self:
        return _flagged(self, at_prior=False, moving=self.moving)

    def for_simulation(self) -> Self:
        return _flagged(self, at_prior=False, moving=False)

    def sized(self, horizon: int) -> Self:
        more = horizon - self.rewards.shape[1]
        if more <= 0:
            return self
        rewards = jnp.pad(self.rewards, ((0, 0), (0, more)), mode="edge")
        return eqx.tree_at(lambda b: b.rewards, self, rewards)

    def _update(self, arm: Array, reward: Array) -> Self:
        updated = super()._update(arm, reward)
        if not self.moving:
            return updated
        # The buffer's last place is overwritten once it is full; `update` makes room before that.
        place = jnp.minimum(self.seen[arm], self.rewards.shape[1] - 1)
        updated = eqx.tree_at(
            lambda b: (b.rewards, b.seen),
            updated,
            (
                self.rewards.at[arm, place].set(jnp.asarray(reward, self.mu.dtype)),
                self.seen.at[arm].add(1),
            ),
        )
        poor = 1 / jnp.sum(jnp.exp(2 * updated.log_weights[arm])) < _LEAST_ESS * self.num_points
        for g, (model, group) in enumerate(zip(self.models, self.groups, strict=True)):
            if can_move(model):
                here = jnp.any(jnp.asarray(group) == arm)
                updated = jax.lax.cond(
                    poor & here,
                    lambda b, g=g: b._moved(g, arm, self.log_weights[arm]),
                    lambda b: b,
                    updated,
                )
        return updated

    def _moved(self, group: int, arm: Array, before: Float[Array, " N"]) -> Self:
        """Resampled and moved; `before`: the arm's log-weights without the newest reward."""
        model = self.models[group]
        place = jnp.argmax(jnp.asarray(self.groups[group]) == arm)
        own = jax.tree.map(lambda leaf: leaf[place], self.params[group])
        next_key, move_key = jax.random.split(self.key)
        rewards, seen = self.rewards[arm], self.seen[arm]
        moved = bring_in(
            model, own, before, rewards, jnp.zeros_like(rewards, jnp.int32), seen, move_key
        )
        mu = jax.vmap(lambda p: model.mean(p))(moved.params)
        order = jnp.argsort(mu)
        params = list(self.params)
        params[group] = jax.tree.map(
            lambda leaf, new: leaf.at[place].set(new[order]), self.params[group], moved.params
        )
        even = jnp.full(self.num_points, -math.log(self.num_points), self.mu.dtype)
        return eqx.tree_at(
            _moved_fields,
            self,
            (
                tuple(params),
                self.mu.at[arm].set(mu[order].astype(self.mu.dtype)),
                self.log_weights.at[arm].set(even),
                next_key,
                self.rejuvenations.at[arm].add(moved.moves),
                self.tempered.at[arm].add((moved.moves > 1).astype(jnp.int32)),
                self.acceptance.at[arm].set(moved.acceptance.astype(self.acceptance.dtype)),
            ),
        )

    def update(self, arm: Any, reward: Any) -> Belief:
        ready = self.in_play()
        if is_concrete(self.seen):
            needed = int(np.max(np.asarray(self.seen))) + int(np.size(reward))
            if needed > self.rewards.shape[1]:
                ready = ready.sized(2 * needed)  # doubling: few recompilations
        return super(Particles, ready).update(arm, reward)

    def mean_error(self) -> Float[Array, " K"]:
        """Estimated standard error of the predictive means as Monte Carlo sums over the cloud."""
        return self.mean_sd() / jnp.sqrt(self.effective_sample_size())

    def __repr__(self) -> str:
        text = super().__repr__()
        if not self.at_prior and is_concrete(self.seen) and self.moving:
            ess = np.asarray(self.effective_sample_size())
            moves = np.asarray(self.rejuvenations)
            text += (
                f"; effective sample size {ess.min():.0f} at least, "
                f"{int(moves.sum())} rejuvenations"
            )
        return text


class JointParticles(JointPoints):
    """Correlated arms: one cloud of the shared latents, one record of pulls and rewards."""

    rewards: Float[Array, " B"]
    arms: Int[Array, " B"]
    seen: Int[Array, ""]
    key: Array
    rejuvenations: Int[Array, ""]
    tempered: Int[Array, ""]
    acceptance: Float[Array, ""]
    at_prior: bool = eqx.field(static=True)
    moving: bool = eqx.field(static=True)

    def __init__(self, model: ArmModel, num_particles: int, key: Array, reason: str):
        set_key, self.key = jax.random.split(key)
        params = draw_set(model, set_key, num_particles)
        super().__init__(model, params, jnp.zeros(num_particles), "particle", reason)
        self.rewards = jnp.full(_BUFFER, model.support.inside, self.mu.dtype)
        self.arms = jnp.zeros(_BUFFER, jnp.int32)
        self.seen = jnp.asarray(0, jnp.int32)
        self.rejuvenations = jnp.asarray(0, jnp.int32)
        self.tempered = jnp.asarray(0, jnp.int32)
        self.acceptance = jnp.asarray(jnp.nan, self.mu.dtype)
        self.at_prior, self.moving = True, True

    @property
    def is_approximate(self) -> bool:
        return not self.at_prior

    def _sample_truth(self, key: Array, horizon: int) -> Outcome:
        if not self.at_prior:
            return self._sample(key, horizon)
        set_key, chosen_key, reward_key = jax.random.split(key, 3)
        params = draw_set(self.model, set_key, self.num_points)
        fresh = JointPoints(self.model, params, jnp.zeros(self.num_points), self.kind, self.reason)
        chosen = jax.random.randint(chosen_key, (), 0, self.num_points)
        outcome = fresh._outcome_at(chosen, reward_key, horizon)
        return eqx.tree_at(lambda o: o.belief, outcome, fresh, is_leaf=lambda x: x is None)

    def in_play(self) -> Self:
        return _flagged(self, at_prior=False, moving=self.moving)

    def for_simulation(self) -> Self:
        return _flagged(self, at_prior=False, moving=False)

    def sized(self, horizon: int) -> Self:
        more = horizon - self.rewards.shape[0]
        if more <= 0:
            return self
        buffers = (jnp.pad(self.rewards, (0, more), mode="edge"), jnp.pad(self.arms, (0, more)))
        return eqx.tree_at(lambda b: (b.rewards, b.arms), self, buffers)

    def _update(self, arm: Array, reward: Array) -> Self:
        updated = super()._update(arm, reward)
        if not self.moving:
            return updated
        place = jnp.minimum(self.seen, self.rewards.shape[0] - 1)
        updated = eqx.tree_at(
            lambda b: (b.rewards, b.arms, b.seen),
            updated,
            (
                self.rewards.at[place].set(jnp.asarray(reward, self.mu.dtype)),
                self.arms.at[place].set(jnp.asarray(arm, jnp.int32)),
                self.seen + 1,
            ),
        )
        if not can_move(self.model):
            return updated
        poor = updated.effective_sample_size() < _LEAST_ESS * self.num_points
        return jax.lax.cond(poor, lambda b: b._moved(self.log_weights), lambda b: b, updated)

    def _moved(self, before: Float[Array, " N"]) -> Self:
        """Resampled and moved; `before`: the log-weights without the newest reward."""
        next_key, move_key = jax.random.split(self.key)
        moved = bring_in(
            self.model, self.params, before, self.rewards, self.arms, self.seen, move_key
        )
        mu = joint_means(self.model, moved.params)
        even = jnp.full(self.num_points, -math.log(self.num_points), self.mu.dtype)
        return eqx.tree_at(
            _moved_fields,
            self,
            (
                moved.params,
                mu.astype(self.mu.dtype),
                even,
                next_key,
                self.rejuvenations + moved.moves,
                self.tempered + (moved.moves > 1),
                moved.acceptance.astype(self.acceptance.dtype),
            ),
        )

    def update(self, arm: Any, reward: Any) -> Belief:
        ready = self.in_play()
        if is_concrete(self.seen):
            needed = int(self.seen) + int(np.size(reward))
            if needed > self.rewards.shape[0]:
                ready = ready.sized(2 * needed)
        return super(JointParticles, ready).update(arm, reward)

    def mean_error(self) -> Float[Array, " K"]:
        """Estimated standard error of the predictive means as Monte Carlo sums over the cloud."""
        return self.mean_sd() / jnp.sqrt(self.effective_sample_size())


def _moved_fields(b: Any) -> tuple[Any, ...]:
    return b.params, b.mu, b.log_weights, b.key, b.rejuvenations, b.tempered, b.acceptance


def _group_sets(model: ArmModel, group: Sequence[int], key: Array, count: int) -> Params:
    """One set per arm of the group, each with its own randomisation, `[G, N, ...]`."""
    keys = jax.vmap(lambda arm: jax.random.fold_in(key, arm))(jnp.asarray(tuple(group)))
    return jax.vmap(lambda k: draw_set(model, k, count))(keys)


def _flagged(belief: Any, at_prior: bool, moving: bool) -> Any:
    if (belief.at_prior, belief.moving) == (at_prior, moving):
        return belief
    copy = jax.tree.map(lambda leaf: leaf, belief)  # a fresh object: nobody else holds it
    object.__setattr__(copy, "at_prior", at_prior)
    object.__setattr__(copy, "moving", moving)
    return copy
