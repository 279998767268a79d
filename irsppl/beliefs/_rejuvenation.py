"""IBIS moves: resample a degenerate cloud and move it with MCMC on the posterior given all data.

A reward that would leave hardly any point with weight is brought in by steps: its likelihood is
raised to powers that rise to one, and the cloud is resampled and moved at each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from irsppl.beliefs._moves import rejuvenate
from irsppl.beliefs._subclouds import is_poor, parts_of, standard_error
from irsppl.beliefs._types import ArmModel, Params

# Effective sample sizes, as shares of the number of points. A step that leaves less than the first
# is a collapse; the power is then chosen to leave the second.
_COLLAPSE = 0.1
_LEAVE = 0.5
# A step that leaves half narrows one dimension to 0.37 of its width: twenty-one steps to 1e-9. The
# limit only keeps the loop finite.
_MOST_STEPS = 100
_BISECTIONS = 40
# Log-densities that are rounded by more than this make means doubtful.
_MOST_UNSEEN = 0.25

# Rewards are summed in blocks, as many as hold data: a move costs what was seen, not the buffer.
_BLOCK = 16


class Record(NamedTuple):
    """Rewards with weights: the log-likelihood of the data is a weighted sum over them.

    A weight is 1 for a reward that was seen, 0 for padding, between them for one that is being
    brought in by steps, and a count where equal rewards have been put together.
    """

    rewards: Float[Array, " B"]
    arms: Int[Array, " B"]
    weights: Float[Array, " B"]
    blocks: Int[Array, ""]  # of _BLOCK rewards, that hold any weight


# ---- the data


def record(
    model: ArmModel,
    rewards: Float[Array, " B"],
    arms: Int[Array, " B"],
    seen: Array,
    newest_power: Array,
) -> Record:
    """The first `seen` rewards of a buffer, the last of them raised to a power."""
    size = rewards.shape[0]
    place = jnp.arange(size)
    weights = jnp.where(place < seen, 1, 0).astype(rewards.dtype)
    # A full buffer overwrites its last place (see `update`, which makes room before that).
    newest = jnp.minimum(seen, size) - 1
    weights = jnp.where(place == newest, newest_power.astype(rewards.dtype), weights)
    values = model.reward_values
    if values is not None and len(values) * model.num_arms < size:
        # Few rewards are possible: how often each came says it all.
        known = jnp.asarray(values, rewards.dtype)
        which = jnp.argmin(jnp.abs(rewards[:, None] - known[None, :]), axis=1)
        counts = jnp.zeros((model.num_arms, len(values)), rewards.dtype)
        counts = counts.at[arms if model.joint else 0, which].add(weights)
        each_arm = jnp.repeat(jnp.arange(model.num_arms), len(values))
        rewards, arms = jnp.tile(known, model.num_arms), each_arm.astype(arms.dtype)
        weights = counts.ravel()
        used = jnp.asarray(weights.shape[0])
    else:
        used = jnp.minimum(seen, size)
    short = -weights.shape[0] % _BLOCK
    return Record(
        jnp.pad(rewards, (0, short), mode="edge"),
        jnp.pad(arms, (0, short), mode="edge"),
        jnp.pad(weights, (0, short)),
        (used + _BLOCK - 1) // _BLOCK,
    )


def block_sum(
    continuous: Params, model: ArmModel, fixed: tuple[Params, Record], block: Array
) -> Float[Array, ""]:
    """Log-likelihood at one point of one block of a record; fixed: (discrete latents, record)."""
    discrete, data = fixed
    params = {**continuous, **discrete}

    def part(leaf: Array) -> Array:
        return jax.lax.dynamic_slice_in_dim(leaf, block * _BLOCK, _BLOCK)

    def one(reward: Array, arm: Array) -> Array:
        return model.log_likelihood(params, reward, arm if model.joint else None)

    weights = part(data.weights)
    each = jax.vmap(one)(part(data.rewards), part(data.arms))
    return jnp.sum(jnp.where(weights > 0, weights * each, 0))


def data_log_likelihood(model: ArmModel, params: Params, data: Record) -> Float[Array, ""]:
    """Log-likelihood of a record at one point."""
    discrete = {name: leaf for name, leaf in params.items() if model.latents[name].discrete}
    continuous = {name: leaf for name, leaf in params.items() if name not in discrete}
    return _summed(model, continuous, (discrete, data))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _summed(model: ArmModel, continuous: Params, fixed: tuple[Params, Record]) -> Array:
    """JAX does not differentiate a loop whose length is data backwards, so the gradient is written
    out: it is the sum of the blocks' gradients."""
    data = fixed[1]
    return jax.lax.fori_loop(
        0,
        data.blocks,
        lambda i, total: total + block_sum(continuous, model, fixed, i),
        jnp.zeros((), data.weights.dtype),
    )


def _forward(
    model: ArmModel, continuous: Params, fixed: tuple[Params, Record]
) -> tuple[Array, Params]:
    data = fixed[1]
    start = (jnp.zeros((), data.weights.dtype), jax.tree.map(jnp.zeros_like, continuous))

    def add(i: Array, total: Any) -> Any:
        part = jax.value_and_grad(block_sum)(continuous, model, fixed, i)
        return jax.tree.map(lambda a, b: a + b.astype(a.dtype), total, part)

    return jax.lax.fori_loop(0, data.blocks, add, start)


def _backward(model: ArmModel, gradient: Params, cotangent: Array) -> tuple[Params, None]:
    return jax.tree.map(lambda leaf: leaf * cotangent.astype(leaf.dtype), gradient), None


_summed.defvjp(_forward, _backward)


# ---- the newest reward, by steps if need be


class MoveState(NamedTuple):
    """How well a cloud is moved; carried from move to move."""

    inflation: Float[Array, ""]  # of the variance of means, over that of as many independent points
    step: Float[Array, ""]  # of Hamiltonian moves
    acceptance: Float[Array, ""]  # of the last moves


class Moved(NamedTuple):
    params: Params  # leading axis N, in the order of parts
    log_weights: Float[Array, " N"]  # even but for those of rare combinations of discrete latents
    mu: Float[Array, "N K"]  # mean rewards there
    move_state: MoveState
    moves: Int[Array, ""]
    poor: Bool[Array, " K"]  # where the means have a large error


def bring_in(
    model: ArmModel,
    params: Params,
    log_weights: Float[Array, " N"],
    part: Int[Array, " N"],
    data: tuple[Float[Array, " B"], Int[Array, " B"], Array],
    mean_of: Callable[[Params], Float[Array, " K"]],
    move_state: MoveState,
    key: Array,
) -> Moved:
    """A cloud for the posterior given the first `seen` rewards of data = (rewards, arms, seen).

    params, log_weights and part are the cloud before the last of those; one step takes it in unless
    that would collapse the weights. mean_of: mean rewards at one point.
    """
    by_part = jnp.argsort(part, stable=True)
    params, log_weights = jax.tree.map(lambda leaf: leaf[by_part], (params, log_weights))
    count = len(log_weights)
    parts = np.sort(parts_of(count))
    rewards, arms, seen = data
    newest = jnp.minimum(seen, rewards.shape[0]) - 1
    reward, arm = rewards[newest], arms[newest]

    def newest_log_likelihood(params: Params) -> Array:
        return model.log_likelihood(params, reward, arm if model.joint else None)

    def step(state: Any) -> Any:
        power, params, log_weights, key, moves, move_state, _ = state
        key, move_key = jax.random.split(key)
        row = jax.vmap(newest_log_likelihood)(params).astype(log_weights.dtype)
        room = 1 - power
        rise = jnp.where(moves < _MOST_STEPS - 1, _rise(log_weights, row, room), room)
        power = jnp.where(rise < room, power + rise, 1)
        known = record(model, rewards, arms, seen, power)
        log_weights = jax.nn.log_softmax(log_weights + rise * row)
        of_data = functools.partial(data_log_likelihood, model, data=known)
        cloud = (params, log_weights, parts)
        new = rejuvenate(model, *cloud, of_data, mean_of, move_state.step, move_key)
        points = jax.tree.map(lambda old, new: new.astype(old.dtype), params, new.params)
        # Copies of a point that moves have not parted count as one: variances of means grow with
        # the squares of weights, as far as points remember where they started.
        copies = move_state.inflation * count * jnp.sum(jnp.exp(2 * log_weights))
        inflation = 1 + new.memory**2 * jnp.maximum(copies - 1, 0)
        kept = MoveState(inflation, new.step, new.acceptance)
        kept = jax.tree.map(lambda old, new: new.astype(old.dtype), move_state, kept)
        after = new.log_weights.astype(log_weights.dtype)
        drift = new.drift.astype(log_weights.dtype)
        return power, points, after, key, moves + 1, kept, drift

    zero = jnp.zeros((), log_weights.dtype)
    still = jnp.zeros(jax.eval_shape(mean_of, jax.tree.map(lambda p: p[0], params)).shape)
    start = (
        *(zero, params, log_weights, key, jnp.asarray(0, jnp.int32), move_state),
        still.astype(log_weights.dtype),
    )
    end = jax.lax.while_loop(lambda s: s[0] < 1, step, start)
    _, points, log_weights, _, moves, kept, drift = end
    mu = jax.vmap(mean_of)(points).astype(log_weights.dtype)
    weights = jnp.exp(log_weights)
    sd = jnp.sqrt(weights @ (mu - (weights @ mu)[None, :]) ** 2)
    # Moves see the density to its rounding only: one reward 1e4 deviations from what was expected
    # leaves nothing of it, and whether a point moves is up to chance.
    known = functools.partial(
        data_log_likelihood, model, data=record(model, *data, jnp.ones_like(zero))
    )
    most = jnp.max(jnp.abs(jnp.nan_to_num(jax.vmap(known)(points), neginf=0.0)))
    unseen = jnp.finfo(sd.dtype).eps * most.astype(sd.dtype)
    drift = jnp.where(unseen > _MOST_UNSEEN, jnp.maximum(drift, unseen * sd), drift)
    # Means that have not come to rest are off by as much as they drift at least.
    size = 1 / jnp.sum(weights**2)
    needed = jnp.max(jnp.where(drift > 0, size * (drift / jnp.maximum(sd, 1e-30)) ** 2, 0))
    kept = kept._replace(inflation=jnp.maximum(kept.inflation, needed.astype(sd.dtype)))
    ess = (size / kept.inflation).astype(mu.dtype)
    error = standard_error(mu, weights, jnp.asarray(parts), ess)
    return Moved(points, log_weights, mu, kept, moves, is_poor(error, sd, count))


def _rise(log_weights: Array, row: Array, room: Array) -> Float[Array, ""]:
    """By how much the power of a likelihood can rise, at most `room`; never zero."""
    count = log_weights.shape[0]

    def share(rise: Array) -> Array:
        weights = jax.nn.softmax(log_weights + rise * row)
        return 1 / (count * jnp.sum(weights**2))

    def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = (low + high) / 2
        enough = share(middle) >= _LEAVE
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    def bisect() -> Array:
        return jax.lax.fori_loop(0, _BISECTIONS, halve, (jnp.zeros_like(room), room))[1]

    return jax.lax.cond(share(room) >= _COLLAPSE, lambda: room, bisect)
