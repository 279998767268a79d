"""Particles: any NumPyro model, as a randomised cloud of weighted points.

A bound is valid for the user's prior at every number of particles because each sampled future
brings a fresh randomised set with its own parameter among it: posterior means within that set are
true conditional expectations. In play, a cloud whose weights have degenerated is resampled and
moved by MCMC on the posterior given all data so far; a reward that would collapse the weights is
brought in by steps. A cloud is made of sub-clouds that never meet: what they disagree by is its
error.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from irsppl._fields import M, assemble, changed
from irsppl.beliefs._cloud import Cloud
from irsppl.beliefs._even import kronecker
from irsppl.beliefs._joint import JointPoints
from irsppl.beliefs._moves import first_step
from irsppl.beliefs._points import Points, means_at
from irsppl.beliefs._rejuvenation import MoveState, bring_in
from irsppl.beliefs._subclouds import parts_of
from irsppl.beliefs._types import ArmModel, Params

DEFAULT_PARTICLES = 1024
_BUFFER = 512


@functools.partial(jax.jit, static_argnums=(0, 2))
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


class Particles(Cloud, Points):
    """Independent arms: each has its own cloud and its own record of rewards."""

    def __init__(
        self,
        models: Sequence[ArmModel],
        groups: Sequence[Sequence[int]],
        num_particles: int,
        key: Array,
        reason: str,
    ):
        set_key, self.key = jax.random.split(key)
        params, even = _sets(models, groups, set_key, num_particles)
        Points.__init__(self, models, groups, params, even, "particle", reason)
        # Parts are dealt in the order of the sets, points kept in that of their means.
        parts = np.zeros((self.num_arms, num_particles), np.int32)
        inside, step = np.zeros((self.num_arms, _BUFFER), self.mu.dtype), np.zeros(self.num_arms)
        for model, group, own in zip(models, groups, params, strict=True):
            order = np.argsort(np.asarray(means_at(model, own)), axis=1, kind="stable")
            parts[list(group)] = parts_of(num_particles)[order]
            inside[list(group)] = model.support.inside
            step[list(group)] = first_step(model)
        self.part, self.rewards = jnp.asarray(parts), jnp.asarray(inside)
        self._begin(step)

    def fresh(self, key: Array) -> Points:
        sets = _sets(self.models, self.groups, key, self.num_points)
        return Points(self.models, self.groups, *sets, self.kind, self.reason)

    def plain(self) -> Points:
        return _only(Points, self)

    def law(self, n: int | None) -> None:
        return None  # exact for the cloud, not for the prior that it stands for

    def sized(self, horizon: int) -> Self:
        more = horizon - self.rewards.shape[1]
        if more <= 0:
            return self
        return changed(self, rewards=jnp.pad(self.rewards, ((0, 0), (0, more)), mode="edge"))

    def noted(self, arm: Array, reward: Array) -> Self:
        updated = changed(super().given(arm, reward), seen=self.seen.at[arm].add(1))
        if not self.moving:
            return updated
        # The buffer's last place is overwritten once it is full; `update` makes room before that.
        place = jnp.minimum(self.seen[arm], self.rewards.shape[1] - 1)
        rewards = self.rewards.at[arm, place].set(jnp.asarray(reward, self.mu.dtype))
        return changed(updated, rewards=rewards)

    def given(self, arm: Array, reward: Array) -> Self:
        updated = self.noted(arm, reward)
        if not self.moving:
            return updated
        needy, before = updated.in_need()[arm], self.log_weights
        for g, group in enumerate(self.groups):
            here = jnp.any(jnp.asarray(group) == arm)
            updated = jax.lax.cond(
                needy & here, lambda b, g=g: b.moved(g, arm, before), lambda b: b, updated
            )
        return updated

    def moved(self, group: int, arm: Array, before: Float[Array, "K N"]) -> Self:
        model = self.models[group]
        place = jnp.argmax(jnp.asarray(self.groups[group]) == arm)
        next_key, move_key = jax.random.split(self.key)
        rewards = self.rewards[arm]
        moved = bring_in(
            model,
            jax.tree.map(lambda leaf: leaf[place], self.params[group]),
            before[arm],
            self.part[arm],
            (rewards, jnp.zeros_like(rewards, jnp.int32), self.seen[arm]),
            lambda p: model.mean(p)[None],
            MoveState(self.inflation[arm], self.step[arm], self.acceptance[arm]),
            move_key,
        )
        mu = moved.mu[:, 0]
        order = jnp.argsort(mu)
        params = list(self.params)
        params[group] = jax.tree.map(
            lambda leaf, new: leaf.at[place].set(new[order]), self.params[group], moved.params
        )
        part = jnp.asarray(np.sort(parts_of(self.num_points)), jnp.int32)
        return changed(
            self,
            params=tuple(params),
            mu=self.mu.at[arm].set(mu[order]),
            log_weights=self.log_weights.at[arm].set(moved.log_weights[order]),
            key=next_key,
            rejuvenations=self.rejuvenations.at[arm].add(moved.moves),
            tempered=self.tempered.at[arm].add((moved.moves > 1).astype(jnp.int32)),
            acceptance=self.acceptance.at[arm].set(moved.move_state.acceptance),
            inflation=self.inflation.at[arm].set(moved.move_state.inflation),
            step=self.step.at[arm].set(moved.move_state.step),
            poor=self.poor.at[arm].set(moved.poor[0]),
            part=self.part.at[arm].set(part[order]),
        )


class JointParticles(Cloud, JointPoints):
    """Correlated arms: one cloud of the shared latents, one record of pulls and rewards."""

    arms: Int[Array, " B"]  # whose rewards these are

    def __init__(self, model: ArmModel, num_particles: int, key: Array, reason: str):
        set_key, self.key = jax.random.split(key)
        params = draw_set(model, set_key, num_particles)
        JointPoints.__init__(self, model, params, jnp.zeros(num_particles), "particle", reason)
        self.part = jnp.asarray(parts_of(num_particles), jnp.int32)
        self.rewards = jnp.full(_BUFFER, model.support.inside, self.mu.dtype)
        self.arms = jnp.zeros(_BUFFER, jnp.int32)
        self._begin(first_step(model))

    def fresh(self, key: Array) -> JointPoints:
        params = draw_set(self.model, key, self.num_points)
        return JointPoints(self.model, params, jnp.zeros(self.num_points), self.kind, self.reason)

    def plain(self) -> JointPoints:
        return _only(JointPoints, self)

    def sized(self, horizon: int) -> Self:
        more = horizon - self.rewards.shape[0]
        if more <= 0:
            return self
        rewards = jnp.pad(self.rewards, (0, more), mode="edge")
        return changed(self, rewards=rewards, arms=jnp.pad(self.arms, (0, more)))

    def noted(self, arm: Array, reward: Array) -> Self:
        updated = changed(super().given(arm, reward), seen=self.seen + 1)
        if not self.moving:
            return updated
        place = jnp.minimum(self.seen, self.rewards.shape[0] - 1)
        rewards = self.rewards.at[place].set(jnp.asarray(reward, self.mu.dtype))
        arms = self.arms.at[place].set(jnp.asarray(arm, jnp.int32))
        return changed(updated, rewards=rewards, arms=arms)

    def given(self, arm: Array, reward: Array) -> Self:
        updated = self.noted(arm, reward)
        if not self.moving:
            return updated
        needy, before = updated.in_need(), self.log_weights
        return jax.lax.cond(needy, lambda b: b.moved(0, arm, before), lambda b: b, updated)

    def moved(self, group: int, arm: Array, before: Float[Array, " N"]) -> Self:
        next_key, move_key = jax.random.split(self.key)
        each = jnp.arange(self.num_arms)
        moved = bring_in(
            self.model,
            self.params,
            before,
            self.part,
            (self.rewards, self.arms, self.seen),
            lambda p: jax.vmap(lambda a: self.model.mean(p, a))(each),
            MoveState(self.inflation, self.step, self.acceptance),
            move_key,
        )
        return changed(
            self,
            params=moved.params,
            mu=moved.mu,
            log_weights=moved.log_weights,
            key=next_key,
            rejuvenations=self.rejuvenations + moved.moves,
            tempered=self.tempered + (moved.moves > 1),
            poor=moved.poor,
            part=jnp.asarray(np.sort(parts_of(self.num_points)), jnp.int32),
            **moved.move_state._asdict(),
        )


# ---- shared by both


def _sets(
    models: Sequence[ArmModel], groups: Sequence[Sequence[int]], key: Array, count: int
) -> tuple[list[Params], list[Array]]:
    """Randomised sets of the arms of every group, and their log-weights."""
    fold = jax.random.fold_in
    params = [
        # One set per arm of the group, each with its own randomisation, [G, N, ...].
        jax.vmap(lambda arm, m=m, i=i: draw_set(m, fold(fold(key, i), arm), count))(np.array(g))
        for i, (m, g) in enumerate(zip(models, groups, strict=True))
    ]
    return params, [jnp.zeros((len(group), count)) for group in groups]


def _only(kind: type[M], belief: Any) -> M:
    """What a belief of that kind has of this one, which has more."""
    names = [field.name for field in dataclasses.fields(kind)]
    return assemble(kind, {name: getattr(belief, name) for name in names})
