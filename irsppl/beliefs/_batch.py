"""Clouds of many replications at once: densities, moves and tables for plans, one program each.

A simulation gathers the clouds that need something and asks for it in one call. Calls are padded
to one size, and moves walk through as many clouds as there are: what becomes of a cloud does not
depend on who else is in the call, and no cloud waits for one that needs more rounds.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from irsppl.beliefs._points import log_likelihoods
from irsppl.beliefs._rejuvenation import Upkeep, bring_in
from irsppl.beliefs._subclouds import is_poor, parts_of, standard_error
from irsppl.models import ArmModel, Params

# Rewards drawn at each point.
_DRAWS = 16


class CloudBatch(NamedTuple):
    """Clouds of one model, one per row; what a move needs, beside the data."""

    params: Params  # [B, N, ...]
    log_weights: Float[Array, "B N"]  # before the newest reward
    part: Int[Array, "B N"]
    rewards: Float[Array, "B L"]  # seen so far, padded with possible ones
    arms: Int[Array, "B L"]  # zeros for separate arms
    seen: Int[Array, " B"]
    upkeep: Upkeep  # [B] each
    seeds: Int[Array, "B 2"]
    number: Int[Array, " B"]  # of this move in its replication


class MovedClouds(NamedTuple):
    params: Params  # [B, N, ...], separate arms in order of their means
    mu: Float[Array, "B N K"]  # K = 1 for separate arms
    part: Int[Array, "B N"]
    upkeep: Upkeep
    poor: Bool[Array, "B K"]


@functools.partial(jax.jit, static_argnums=0)
def densities(
    model: ArmModel, params: Params, rewards: Float[Array, " B"], arms: Int[Array, " B"]
) -> Float[Array, "B N"]:
    """Log-likelihood of one reward in each cloud, at each of its points."""

    def one(params: Params, reward: Array, arm: Array) -> Array:
        return log_likelihoods(model, params, reward[None], arm if model.joint else None)[0]

    return jax.vmap(one)(params, rewards, arms)


@functools.partial(jax.jit, static_argnums=0)
def reward_draws(model: ArmModel, params: Params, arm: Any) -> Float[Array, "D N"]:
    """Rewards at each point, to see where they lie: always the same ones."""
    points = jax.tree.leaves(params)[0].shape[0]
    keys = jax.random.split(jax.random.key(0), (_DRAWS, points))
    draw = jax.vmap(lambda key, own: model.sample_reward(key, own, arm))
    return jax.vmap(draw, in_axes=(0, None))(keys, params)


@functools.partial(jax.jit, static_argnums=0)
def move(model: ArmModel, clouds: CloudBatch, count: Array) -> MovedClouds:
    """The first `count` clouds resampled and moved."""
    size, points = clouds.log_weights.shape
    kinds = model.num_arms if model.joint else 1
    part = np.sort(parts_of(points))
    dtype = clouds.log_weights.dtype

    def means_of(params: Params) -> Array:
        if not model.joint:
            return model.mean(params)[None].astype(dtype)
        return jax.vmap(lambda arm: model.mean(params, arm))(jnp.arange(kinds)).astype(dtype)

    def one(own: CloudBatch) -> MovedClouds:
        key = jax.random.wrap_key_data(own.seeds.astype(jnp.uint32), impl="threefry2x32")
        by_part = jnp.argsort(own.part, stable=True)
        moved = bring_in(
            model,
            jax.tree.map(lambda leaf: leaf[by_part], own.params),
            own.log_weights[by_part],
            part,
            (own.rewards, own.arms, own.seen),
            means_of,
            own.upkeep,
            jax.random.fold_in(key, own.number),
        )
        mu = jax.vmap(means_of)(moved.params)
        ess = (points / moved.upkeep.inflation).astype(dtype)
        even = jnp.full(points, 1 / points, dtype)
        error = standard_error(mu, even, jnp.asarray(part), ess)
        poor = is_poor(error, jnp.std(mu, axis=0), points)
        params, parts = moved.params, jnp.asarray(part, jnp.int32)
        if not model.joint:
            order = jnp.argsort(mu[:, 0])
            params, mu, parts = jax.tree.map(lambda leaf: leaf[order], (params, mu, parts))
        return MovedClouds(params, mu, parts, moved.upkeep, poor)

    shapes = jax.eval_shape(one, jax.tree.map(lambda leaf: leaf[0], clouds))
    empty = jax.tree.map(lambda leaf: jnp.zeros((size, *leaf.shape), leaf.dtype), shapes)

    def step(i: Array, done: MovedClouds) -> MovedClouds:
        new = one(jax.tree.map(lambda leaf: leaf[i], clouds))
        return jax.tree.map(lambda all_, row: all_.at[i].set(row), done, new)

    return jax.lax.fori_loop(0, count, step, empty)


@functools.partial(jax.jit, static_argnums=(0, 1))
def atom_laws(
    model: ArmModel, atoms: int, params: Params, weights: Float[Array, " N"], seed: Int[Array, " 2"]
) -> Float[Array, "K R N"]:
    """Probabilities of R reward atoms at each point of one cloud, for plans (K = 1: separate arm).

    The atoms are a sample of the rewards that the cloud expects, whose density is p, so an atom y
    stands for 1 / R of them and has probability f(y | theta) / p(y) / R at a point, made to add to
    one. Posterior means along a future of atoms are then those of an experiment that exists, and
    have the right expectation exactly.
    """
    dtype = weights.dtype
    key = jax.random.wrap_key_data(seed.astype(jnp.uint32), impl="threefry2x32")
    # One draw from each of R points that are spread evenly over the weights.
    edges = jnp.cumsum(weights)
    levels = (jnp.arange(atoms, dtype=dtype) + 0.5) / atoms * edges[-1]
    chosen = jnp.minimum(jnp.searchsorted(edges, levels), weights.shape[0] - 1)
    drawn_from = jax.tree.map(lambda leaf: leaf[chosen], params)

    def of_arm(arm: Any) -> Array:
        keys = jax.random.split(key if arm is None else jax.random.fold_in(key, arm), atoms)
        rewards = jax.vmap(lambda k, p: model.sample_reward(k, p, arm))(keys, drawn_from)
        logs = log_likelihoods(model, params, rewards.astype(dtype), arm)  # [R, N]
        top = jnp.max(logs, axis=1, keepdims=True)
        fit = jnp.where(top > -jnp.inf, jnp.exp(logs - top), 0)
        expected = fit @ weights
        mass = fit / jnp.where(expected > 0, expected, 1)[:, None]
        total = jnp.sum(mass, axis=0, keepdims=True)
        # A point at which no atom is possible has no law: all atoms alike, as if it said nothing.
        return jnp.where(total > 0, mass / jnp.where(total > 0, total, 1), 1 / atoms)

    if not model.joint:
        return of_arm(None)[None]
    return jax.vmap(of_arm)(jnp.arange(model.num_arms))


@functools.partial(jax.jit, static_argnums=0)
def value_laws(model: ArmModel, params: Params) -> Float[Array, "K R N"]:
    """The same where rewards are few: these are the atoms."""

    def of_arm(arm: Any) -> Array:
        values = jnp.asarray(model.reward_values, float)
        return jnp.exp(log_likelihoods(model, params, values, arm))

    if not model.joint:
        return of_arm(None)[None]
    return jax.vmap(of_arm)(jnp.arange(model.num_arms))
