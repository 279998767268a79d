"""IBIS moves: resample a degenerate cloud and move it with MCMC on the posterior given all data.

A reward that would leave hardly any point with weight is brought in by steps: its likelihood is
raised to powers that rise to one, and the cloud is resampled and moved at each.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from irsppl.models import ArmModel, Params

# Independent proposals from a Gaussian fitted to the cloud decorrelate fully while they are
# accepted; where they are not, gradients are worth their price.
_INDEPENDENT_STEPS = 5
_POOR_ACCEPTANCE = 0.2
_HAMILTONIAN_STEPS = 2
_LEAPFROGS = 3

# Effective sample sizes, as shares of the number of points. A step that leaves less than the first
# is a collapse; the power is then chosen to leave the second.
_COLLAPSE = 0.1
_LEAVE = 0.5
# A step that leaves half narrows one dimension to 0.37 of its width: twenty-one steps to 1e-9. The
# limit only keeps the loop finite.
_MOST_STEPS = 100
_BISECTIONS = 40

# Rewards are summed in blocks, as many as hold data: a move costs what was seen, not the buffer.
_BLOCK = 64


class Record(NamedTuple):
    """Rewards with weights: the log-likelihood of the data is a weighted sum over them.

    A weight is 1 for a reward that was seen, 0 for padding, between them for one that is being
    brought in by steps, and a count where equal rewards have been put together.
    """

    rewards: Float[Array, " B"]
    arms: Int[Array, " B"]
    weights: Float[Array, " B"]
    blocks: Int[Array, ""]  # of _BLOCK rewards, that hold any weight


def can_move(model: ArmModel) -> bool:
    """MCMC moves need continuous latents only."""
    return model.dim > 0 and not model.has_discrete


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


def _block_sum(params: Params, model: ArmModel, data: Record, block: Array) -> Array:
    def part(leaf: Array) -> Array:
        return jax.lax.dynamic_slice_in_dim(leaf, block * _BLOCK, _BLOCK)

    def one(reward: Array, arm: Array) -> Array:
        return model.log_likelihood(params, reward, arm if model.joint else None)

    weights = part(data.weights)
    each = jax.vmap(one)(part(data.rewards), part(data.arms))
    return jnp.sum(jnp.where(weights > 0, weights * each, 0))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def data_log_likelihood(model: ArmModel, params: Params, data: Record) -> Float[Array, ""]:
    """Log-likelihood of a record at one point.

    JAX does not differentiate a loop whose length is data backwards, so the gradient is written
    out: it is the sum of the blocks' gradients.
    """
    return jax.lax.fori_loop(
        0,
        data.blocks,
        lambda i, total: total + _block_sum(params, model, data, i),
        jnp.zeros((), data.weights.dtype),
    )


def _forward(model: ArmModel, params: Params, data: Record) -> tuple[Array, tuple[Params, Record]]:
    start = (jnp.zeros((), data.weights.dtype), jax.tree.map(jnp.zeros_like, params))

    def add(i: Array, total: Any) -> Any:
        part = jax.value_and_grad(_block_sum)(params, model, data, i)
        return jax.tree.map(lambda a, b: a + b.astype(a.dtype), total, part)

    value, gradient = jax.lax.fori_loop(0, data.blocks, add, start)
    return value, gradient


def _backward(model: ArmModel, gradient: Params, cotangent: Array) -> tuple[Params, None]:
    return jax.tree.map(lambda leaf: leaf * cotangent.astype(leaf.dtype), gradient), None


data_log_likelihood.defvjp(_forward, _backward)


# ---- the newest reward, by steps if need be


class Moved(NamedTuple):
    params: Params  # leading axis N, equally weighted
    acceptance: Float[Array, ""]  # of the last move
    moves: Int[Array, ""]


def bring_in(
    model: ArmModel,
    params: Params,
    log_weights: Float[Array, " N"],
    rewards: Float[Array, " B"],
    arms: Int[Array, " B"],
    seen: Array,
    key: Array,
) -> Moved:
    """An equally weighted cloud for the posterior given the first `seen` rewards.

    params and log_weights are the cloud before the last of those; one step takes it in unless
    that would collapse the weights.
    """
    newest = jnp.minimum(seen, rewards.shape[0]) - 1
    reward, arm = rewards[newest], arms[newest]

    def newest_log_likelihood(params: Params) -> Array:
        return model.log_likelihood(params, reward, arm if model.joint else None)

    def step(state: Any) -> Any:
        power, params, log_weights, key, moves, _ = state
        key, move_key = jax.random.split(key)
        row = jax.vmap(newest_log_likelihood)(params).astype(log_weights.dtype)
        room = 1 - power
        rise = jnp.where(moves < _MOST_STEPS - 1, _rise(log_weights, row, room), room)
        power = jnp.where(rise < room, power + rise, 1)
        data = record(model, rewards, arms, seen, power)
        points, accepted = rejuvenate(
            model,
            params,
            jax.nn.log_softmax(log_weights + rise * row),
            lambda p: data_log_likelihood(model, p, data),
            move_key,
        )
        points = jax.tree.map(lambda old, new: new.astype(old.dtype), params, points)
        even = jnp.full_like(log_weights, -jnp.log(log_weights.shape[0]))
        return power, points, even, key, moves + 1, accepted.astype(power.dtype)

    zero = jnp.zeros((), log_weights.dtype)
    start = (zero, params, log_weights, key, jnp.asarray(0, jnp.int32), zero)
    _, points, _, _, moves, accepted = jax.lax.while_loop(lambda s: s[0] < 1, step, start)
    return Moved(points, accepted, moves)


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


# ---- moves


def even_normals(key: Array, steps: int, count: int, dim: int) -> Float[Array, "steps N d"]:
    """Standard normal draws that are evenly spread over the points of each step.

    Each alone is standard normal, which is all that a point's own chain needs; together they vary
    less than independent ones. A randomly shifted lattice, dealt to the points at random.
    """
    shift_key, deal_key = jax.random.split(key)
    shift = jax.random.uniform(shift_key, (steps, 1, dim))
    even = (jnp.asarray(kronecker(count, dim), shift.dtype)[None] + shift) % 1
    deal = jax.vmap(lambda k: jax.random.permutation(k, count))(jax.random.split(deal_key, steps))
    even = jax.vmap(lambda table, order: table[order])(even, deal)
    tiny = float(jnp.finfo(even.dtype).eps)
    return jax.scipy.special.ndtri(jnp.clip(even, tiny, 1 - tiny))


def kronecker(count: int, dim: int) -> np.ndarray:
    """`[count, dim]` points of the unit cube, evenly spread.

    Steps are powers of the inverse of the root of x^(d+1) = x + 1 (the plastic number's kin).
    """
    root = 1.5
    for _ in range(60):
        root = (1 + root) ** (1 / (dim + 1))
    steps = np.array([math.pow(root, -(i + 1)) for i in range(dim)])
    return np.outer(np.arange(count), steps) % 1.0


def rejuvenate(
    model: ArmModel,
    params: Params,
    log_weights: Float[Array, " N"],
    log_likelihood: Callable[[Params], Array],
    key: Array,
) -> tuple[Params, Float[Array, ""]]:
    """An equally weighted cloud for the posterior, and the share of accepted moves.

    params: leading axis N; log_likelihood: of all data so far at one point.
    """
    import blackjax
    from blackjax.smc.resampling import systematic

    count = log_weights.shape[0]
    resample_key, move_key, hmc_key = jax.random.split(key, 3)
    weights = jnp.exp(log_weights)
    chosen = systematic(resample_key, weights, count)
    old = jax.vmap(model.unconstrain)(jax.tree.map(lambda leaf: leaf[chosen], params))

    def density(z: Array) -> Array:
        value = model.log_prior_unconstrained(z) + log_likelihood(model.constrain(z))
        return jnp.where(jnp.isnan(value), -jnp.inf, value)

    # Fitted to the weighted cloud before resampling, which has the more distinct points.
    every = jax.vmap(model.unconstrain)(params)
    mean = weights @ every
    spread = every - mean[None, :]
    cov = (weights[:, None] * spread).T @ spread
    scale = jnp.sqrt(jnp.diagonal(cov)) + 1e-12
    correlation = cov / scale[:, None] / scale[None, :] + 1e-4 * jnp.eye(model.dim)
    root = 1.1 * scale[:, None] * jnp.linalg.cholesky(correlation)

    def score(z: Array) -> Array:
        """Posterior over proposal density, in logs: what independent moves compare."""
        white = jax.scipy.linalg.solve_triangular(root, z - mean, lower=True)
        return density(z) + 0.5 * white @ white

    # Proposals do not depend on where a point is: all of them are drawn and weighed at once.
    draw_key, accept_key = jax.random.split(move_key)
    shape = (_INDEPENDENT_STEPS, count)
    noise = even_normals(draw_key, *shape, model.dim).astype(mean.dtype)
    proposals = mean[None, None, :] + noise @ root.T
    scores = jax.vmap(jax.vmap(score))(jnp.concatenate([old[None], proposals]))
    dice = jnp.log(jax.random.uniform(accept_key, shape, mean.dtype))

    def step(state: tuple[Array, Array], offer: tuple[Array, Array, Array]) -> tuple[Any, Array]:
        z, at = state
        new, there, dice = offer
        gain = there - at
        moves = dice < gain
        state = (jnp.where(moves[:, None], new, z), jnp.where(moves, there, at))
        return state, jnp.mean(jnp.exp(jnp.minimum(gain, 0)))

    (moved, _), rates = jax.lax.scan(step, (old, scores[0]), (proposals, scores[1:], dice))
    accepted = jnp.mean(rates)

    def follow_gradients(z: Array) -> Array:
        kernel = blackjax.hmc(
            density,
            step_size=0.9 * model.dim**-0.25,
            inverse_mass_matrix=scale**2,
            num_integration_steps=_LEAPFROGS,
        )

        def one(z: Array, key: Array) -> Array:
            keys = jax.random.split(key, _HAMILTONIAN_STEPS)
            walk = jax.lax.scan(lambda s, k: (kernel.step(k, s)[0], None), kernel.init(z), keys)
            return walk[0].position

        return jax.vmap(one)(z, jax.random.split(hmc_key, count))

    moved = jax.lax.cond(accepted < _POOR_ACCEPTANCE, follow_gradients, lambda z: z, moved)
    return jax.vmap(model.constrain)(moved), accepted
