"""Latents that a reward points at: where the likelihood of that reward may have a peak.

The probability of a reward up to this one is a function of the latent. For x plus noise its slope
is the likelihood itself; and while the likelihood shows nothing of a narrow peak to a point outside
(where outliers are possible, it is flat there), the function has made its step between any two
points on either side. So the steepest part is found by looking at smaller and smaller parts.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from irsppl.beliefs._types import ArmModel, Params

# The steepest of 16 parts, and of 16 of that: 256 nodes are narrowed down to 1/250 of a spacing.
_PARTS = 16
_ROUNDS = 4
# A likelihood that falls by more than this from a peak between two nodes to either of them, or to
# one, has a standard deviation less than 0.7 of their distance. Of a narrower peak more than a
# ten-thousandth of the mass may be lost, or counted twice where a node happens to be on it.
_TO_EITHER = 0.25
_TO_ONE = 1.0
# Peaks so far below the highest node do not count.
_LOW = 8.0


def pointed_at(model: ArmModel, params: Params, reward: Array) -> Params:
    """Two latents, given nodes in order: a reward that depends on the square has as many."""
    (name,) = params
    nodes = params[name]
    count = nodes.shape[0]
    even = jnp.linspace(0, 1, _PARTS + 1, dtype=reward.dtype)

    def latent(place: Array) -> Array:
        """Between nodes, counted from the first."""
        cell = jnp.clip(place.astype(int), 0, count - 2)
        return nodes[cell] + (place - cell) * (nodes[cell + 1] - nodes[cell])

    def narrowed(low: Array, high: Array, rank: Array) -> tuple[Array, Array]:
        places = low + (high - low) * even
        below = jax.vmap(lambda p: model.reward_cdf({name: latent(p)}, reward))(places)
        steps = jnp.nan_to_num(jnp.abs(jnp.diff(below)))
        best = jnp.argmax(steps)
        best = jnp.where(rank == 0, best, jnp.argmax(steps.at[best].set(-1)))
        return places[best], places[best + 1]

    def again(turn: Array, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        # At first the two steepest parts, then the steepest of each.
        rank = jnp.where(turn == 0, jnp.arange(2), 0)
        return jax.vmap(narrowed)(*bracket, rank)

    ends = jnp.zeros(2, reward.dtype), jnp.full(2, count - 1, reward.dtype)
    # A loop, so that the law is compiled once.
    low, high = jax.lax.fori_loop(0, _ROUNDS, again, ends)
    return {name: jax.vmap(latent)((low + high) / 2)}


def points_between(
    model: ArmModel, params: Params, before: Array, after: Array, reward: Array
) -> Bool[Array, ""]:
    """Whether a reward has a peak between nodes that are too far apart for it.

    Nodes in order of the latent; before, after: their log-weights, without and with the reward.
    """
    (name,) = params
    found = pointed_at(model, params, reward)
    heaviest = jnp.argmax(after)
    latents = jnp.concatenate([found[name], params[name][heaviest][None]])
    heights = jax.vmap(lambda at: model.log_likelihood({name: at}, reward))(latents)
    # At nodes the likelihood is how weights have changed, but for a constant.
    changes = jnp.where(after > -jnp.inf, after - before, -jnp.inf)
    heights = (heights - heights[-1] + changes[heaviest])[:-1]
    nodes = params[name].reshape(len(after), -1)[:, 0]
    at = found[name].reshape(2, -1)[:, 0]
    cell = jnp.clip(jnp.searchsorted(nodes, at) - 1, 0, len(after) - 2)
    ends = changes[cell], changes[cell + 1]
    narrow = (heights > jnp.maximum(*ends) + _TO_EITHER) | (heights > jnp.minimum(*ends) + _TO_ONE)
    counts = jnp.maximum(before[cell], before[cell + 1]) + heights > jnp.max(after) - _LOW
    return jnp.any(narrow & counts)


@eqx.filter_jit
def likely_latents(model: ArmModel, params: Params, rewards: Float[Array, " R"]) -> Array:
    """Two for each reward."""
    (name,) = params
    each = jax.vmap(lambda reward: pointed_at(model, params, reward)[name])(rewards)
    return each.reshape(-1, *each.shape[2:])
