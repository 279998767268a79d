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
from jaxtyping import Array, Float, Int

from irsppl._xla_options import jit, lean, quick
from irsppl.beliefs._points import log_likelihoods
from irsppl.beliefs._rejuvenation import Moved, MoveState, block_sum, bring_in, record
from irsppl.beliefs._types import ArmModel, Params

# Rewards drawn at each point.
_DRAWS = 16
# Threads play groups of clouds: calls this small are only held up where XLA shares one of them out
# between its own threads as well.
_UNDIVIDED = {"xla_disable_hlo_passes": "cpu-parallel-task-assigner"}
_program = functools.partial(functools.partial, jax.jit, compiler_options=_UNDIVIDED)
_large_program = functools.partial(jit, lambda: _UNDIVIDED | lean())


class CloudBatch(NamedTuple):
    """Clouds of one model, one per row; what a move needs, beside the data."""

    params: Params  # [B, N, ...]
    log_weights: Float[Array, "B N"]  # before the newest reward
    part: Int[Array, "B N"]
    rewards: Float[Array, "B L"]  # seen so far, padded with possible ones
    arms: Int[Array, "B L"]  # zeros for separate arms
    seen: Int[Array, " B"]
    move_state: MoveState  # [B] each
    seeds: Int[Array, "B 2"]
    number: Int[Array, " B"]  # of this move in its replication


@_program(static_argnums=0)
def densities(
    model: ArmModel, params: Params, rewards: Float[Array, " B"], arms: Int[Array, " B"]
) -> Float[Array, "B N"]:
    """Log-likelihood of one reward in each cloud, at each of its points."""

    def one(params: Params, reward: Array, arm: Array) -> Array:
        return log_likelihoods(model, params, reward[None], arm if model.joint else None)[0]

    return jax.vmap(one)(params, rewards, arms)


class Weighed(NamedTuple):
    """Points in the model's own terms, and how the posterior sees them."""

    params: Params  # [C, N, ...]
    mu: Float[Array, "C N K"]  # K = 1 for separate arms
    log_density: Float[Array, "C N"]  # of the posterior in unconstrained space, but for a constant


@_program(static_argnums=0)
def posteriors(
    model: ArmModel,
    z: Float[Array, "C N d"],
    rewards: Float[Array, "C L"],
    arms: Int[Array, "C L"],
    seen: Int[Array, " C"],
) -> Weighed:
    """Posterior densities at points of C clouds, each given its own `seen` first rewards.

    For models without discrete latents. The loop goes through the blocks of rewards that there
    are, of all clouds one after another: a cloud costs what it has seen, whoever else asks.
    """
    params = jax.vmap(jax.vmap(model.constrain))(z)
    prior = jax.vmap(jax.vmap(model.log_prior_unconstrained))(z)
    power = jnp.ones((), z.dtype)
    data = jax.vmap(lambda r, a, n: record(model, r, a, n, power))(rewards, arms, seen)
    ends = jnp.cumsum(data.blocks)

    def add(i: Array, logs: Array) -> Array:
        c = jnp.searchsorted(ends, i, side="right")
        own, known = jax.tree.map(lambda leaf: leaf[c], (params, data))
        block = i - (ends[c] - known.blocks)
        each = jax.vmap(lambda p: block_sum(p, model, ({}, known), block))(own)
        return logs.at[c].add(each)

    logs = jax.lax.fori_loop(0, ends[-1], add, prior.astype(z.dtype))
    mu = jax.vmap(jax.vmap(functools.partial(_means, model)))(params)
    return Weighed(params, mu.astype(z.dtype), jnp.where(jnp.isnan(logs), -jnp.inf, logs))


@functools.partial(jax.jit, static_argnums=0)
def at_points(
    model: ArmModel, z: Float[Array, "N d"], rewards: Float[Array, " N"]
) -> tuple[Float[Array, " N"], Float[Array, "N K"], Float[Array, "N K"]]:
    """Log-priors, means and the log-likelihoods of a reward each, without loops."""

    def one(z: Array, reward: Array) -> tuple[Array, Array, Array]:
        params = model.constrain(z)
        logs = [model.log_likelihood(params, reward, arm) for arm in _arms(model)]
        return model.log_prior_unconstrained(z), _means(model, params), jnp.stack(logs)

    return jax.vmap(one)(z, rewards)


@functools.partial(jax.jit, static_argnums=0)
def unconstrained(model: ArmModel, params: Params) -> Float[Array, "C N d"]:
    return jax.vmap(jax.vmap(model.unconstrain))(params)


def _means(model: ArmModel, params: Params) -> Float[Array, " K"]:
    """Mean rewards at one point; K = 1 for separate arms."""
    if not model.joint:
        return model.mean(params)[None]
    return jax.vmap(lambda arm: model.mean(params, arm))(jnp.arange(model.num_arms))


@jit(quick, static_argnums=0)
def reward_draws(model: ArmModel, params: Params, arm: Any) -> Float[Array, "D N"]:
    """Rewards at each point, to see where they lie: always the same ones."""
    points = jax.tree.leaves(params)[0].shape[0]
    keys = jax.random.split(jax.random.key(0), (_DRAWS, points))
    draw = jax.vmap(lambda key, own: model.sample_reward(key, own, arm))
    return jax.vmap(draw, in_axes=(0, None))(keys, params)


@_program(static_argnums=0)  # most of what simulations do, up to a tenth slower if lean
def move(model: ArmModel, clouds: CloudBatch, count: Array) -> Moved:
    """The first `count` clouds resampled and moved; K = 1 for separate arms."""
    size, dtype = len(clouds.seen), clouds.log_weights.dtype

    def one(own: CloudBatch) -> Moved:
        key = jax.random.wrap_key_data(own.seeds.astype(jnp.uint32), impl="threefry2x32")
        return bring_in(
            model,
            own.params,
            own.log_weights,
            own.part,
            (own.rewards, own.arms, own.seen),
            lambda params: _means(model, params).astype(dtype),
            own.move_state,
            jax.random.fold_in(key, own.number),
        )

    shapes = jax.eval_shape(one, jax.tree.map(lambda leaf: leaf[0], clouds))
    empty = jax.tree.map(lambda leaf: jnp.zeros((size, *leaf.shape), leaf.dtype), shapes)

    def step(i: Array, done: Moved) -> Moved:
        new = one(jax.tree.map(lambda leaf: leaf[i], clouds))
        return jax.tree.map(lambda all_, row: all_.at[i].set(row), done, new)

    return jax.lax.fori_loop(0, count, step, empty)


@_large_program(static_argnums=0)
def reward_atoms(
    model: ArmModel, z: Float[Array, "C R d"], seeds: Int[Array, "C 2"]
) -> Float[Array, "C K R"]:
    """A reward of each arm at each of R unconstrained points; K = 1 for separate arms."""

    def of_cloud(z: Array, seed: Array) -> Float[Array, "K R"]:
        key = jax.random.wrap_key_data(seed.astype(jnp.uint32), impl="threefry2x32")
        return _drawn(model, jax.vmap(model.constrain)(z), key).astype(z.dtype)

    return jax.vmap(of_cloud)(z, seeds)


def _drawn(model: ArmModel, params: Params, key: Array) -> Float[Array, "K R"]:
    """A reward of each arm at each of R points."""
    points = jax.tree.leaves(params)[0].shape[0]

    def of_arm(arm: Any) -> Array:
        keys = jax.random.split(key if arm is None else jax.random.fold_in(key, arm), points)
        return jax.vmap(lambda k, p: model.sample_reward(k, p, arm))(keys, params)

    return jnp.stack([of_arm(arm) for arm in _arms(model)])


def _arms(model: ArmModel) -> list[Any]:
    return list(range(model.num_arms)) if model.joint else [None]


@_large_program(static_argnums=(0, 1))
def laws(
    model: ArmModel,
    atoms: int,
    params: Params,
    weights: Float[Array, "C N"],
    seeds: Int[Array, "C 2"],
    count: Array,
) -> Float[Array, "C K R N"]:
    """Probabilities of R rewards at each point of the first `count` clouds, for plans.

    K = 1 for separate arms. Few rewards (atoms < 0) are taken as they are. Of many, `atoms` are a
    sample of those that the cloud expects, whose density is p: an atom y stands for 1 / R of them
    and has probability f(y | theta) / p(y) / R at a point, made to add to one. Posterior means
    along a future of atoms are then those of an experiment that exists, and have the right
    expectation exactly.
    """
    arms, values = _arms(model), model.reward_values

    def rewards_of(params: Params, weights: Array, seed: Array) -> Float[Array, "K R"]:
        if atoms < 0:
            return jnp.tile(jnp.asarray(values, weights.dtype)[None], (len(arms), 1))
        key = jax.random.wrap_key_data(seed.astype(jnp.uint32), impl="threefry2x32")
        # One draw from each of R points that are spread evenly over the weights.
        edges = jnp.cumsum(weights)
        levels = (jnp.arange(atoms, dtype=weights.dtype) + 0.5) / atoms * edges[-1]
        chosen = jnp.minimum(jnp.searchsorted(edges, levels), weights.shape[0] - 1)
        drawn_from = jax.tree.map(lambda leaf: leaf[chosen], params)
        return _drawn(model, drawn_from, key).astype(weights.dtype)

    def law_of(params: Params, weights: Array, rewards: Array, arm: Any) -> Float[Array, "R N"]:
        logs = log_likelihoods(model, params, rewards, arm)
        if atoms < 0:
            return jnp.exp(logs)
        top = jnp.max(logs, axis=1, keepdims=True)
        fit = jnp.where(top > -jnp.inf, jnp.exp(logs - top), 0)
        expected = fit @ weights
        mass = fit / jnp.where(expected > 0, expected, 1)[:, None]
        total = jnp.sum(mass, axis=0, keepdims=True)
        # A point at which no atom is possible has no law: all atoms alike, as if it said nothing.
        return jnp.where(total > 0, mass / jnp.where(total > 0, total, 1), 1 / atoms)

    rewards = jax.vmap(rewards_of)(params, weights, seeds)  # [C, K, R]

    def step(i: Array, done: Array) -> Array:
        own, mine, come = jax.tree.map(lambda leaf: leaf[i], (params, weights, rewards))
        made = jnp.stack([law_of(own, mine, come[k], arm) for k, arm in enumerate(arms)])
        return done.at[i].set(made.astype(done.dtype))

    shape = (*rewards.shape, weights.shape[1])
    return jax.lax.fori_loop(0, count, step, jnp.zeros(shape, weights.dtype))
