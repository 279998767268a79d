"""Points that stay at a combination of the discrete latents, however improbable it has become.

Points that follow the posterior leave a combination that data speak against. Should the data turn,
there is nothing left to be reweighted: it would be missed until a proposal happens to cross, and
then be met at the wrong place. So a few points are bound to each combination. They follow the
posterior given it, which keeps proposals for it good, and weigh what it is worth.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from irsppl.beliefs._proposals import Task, Unconstrained

_SHARE = 0.1  # of the points that are sentinels, in all


@dataclasses.dataclass(frozen=True, eq=False)
class Sentinels:
    """Which places of a cloud are bound, and to what."""

    free: Bool[np.ndarray, " N"]  # places that are not
    own: Int[np.ndarray, " N"]  # combination of those that are; zero elsewhere

    def bound_scores(
        self, scores: Float[Array, "... N"], which: Int[Array, "... N"]
    ) -> Float[Array, "... N"]:
        """Scores at points of these combinations, minus infinity where a sentinel may not be."""
        if np.all(self.free):
            return scores
        lead = (None,) * (scores.ndim - 1)
        allowed = jnp.asarray(self.free)[lead] | (which == jnp.asarray(self.own)[lead])
        return jnp.where(allowed, scores, -jnp.inf)


def sentinels(part: Int[np.ndarray, " N"], combinations: int) -> Sentinels:
    """The last places of each part, bound to all combinations in turn."""
    count = len(part)
    free, own = np.ones(count, bool), np.zeros(count, np.int32)
    if combinations > 1:
        sizes = np.bincount(part)
        places = np.arange(count) - np.concatenate([[0], np.cumsum(sizes)[:-1]])[part]
        free = places < np.ceil((1 - _SHARE) * sizes)[part]
        own[~free] = np.arange(np.sum(~free)) % combinations
    return Sentinels(free, own)


def manned(
    task: Task,
    posts: Sentinels,
    chosen: Int[Array, " N"],
    cloud: Unconstrained,
    log_weights: Float[Array, " N"],
    pilots: Float[Array, "J n d"],
    key: Array,
) -> Unconstrained:
    """Points of a cloud for all places: `chosen` for those that are free, for sentinels any of
    their combination, of their own sub-cloud if it has one, or else a pilot."""
    start = jax.tree.map(lambda leaf: leaf[chosen], cloud)
    places = np.flatnonzero(~posts.free)
    if task.combinations is None or not len(places):
        return start
    own, count = posts.own[places], len(posts.free)
    logs = jnp.where(task.member(cloud).T, log_weights[None, :], -jnp.inf)
    top = jnp.max(logs, axis=1, keepdims=True)
    # One sum for each combination; the points of a part lie side by side in it.
    filled = jnp.cumsum(jnp.where(logs > -jnp.inf, jnp.exp(logs - top), 0), axis=1)
    filled = jnp.pad(filled, ((0, 0), (1, 0)))
    ends = np.cumsum(np.bincount(task.part))
    last = ends[task.part[places]]
    first = np.concatenate([[0], ends])[task.part[places]]
    low, high = filled[own, first], filled[own, last]
    low, high = jnp.where(high > low, low, 0), jnp.where(high > low, high, filled[own, -1])
    levels = low + jax.random.uniform(key, low.shape, low.dtype) * (high - low)
    find = jax.vmap(lambda row, level: jnp.searchsorted(row, level, side="right"))
    picked = jnp.clip(find(filled[own], levels) - 1, 0, count - 1)
    # Rounding must not make a level point past its combination.
    there = jnp.take_along_axis(logs[own], picked[:, None], axis=1)[:, 0] > -jnp.inf
    turn = np.arange(len(places)) // task.num_combinations % pilots.shape[1]
    z = jnp.where(there[:, None], cloud.z[picked], pilots[own, turn].astype(cloud.z.dtype))
    discrete = {
        name: leaf.at[places].set(jnp.asarray(task.combinations[name])[own].astype(leaf.dtype))
        for name, leaf in start.discrete.items()
    }
    return Unconstrained(start.z.at[places].set(z), discrete)


def log_weights_of(
    posts: Sentinels,
    which: Int[Array, " N"],
    log_shares: Float[Array, " J"],
) -> Float[Array, " N"]:
    """Normalised log-weights of a moved cloud.

    A combination weighs what free points say, who follow the posterior. Where none has it, it is
    rare: it weighs what proposals say, and no more than one point.
    """
    jobs = len(log_shares)
    if np.all(posts.free):
        return jnp.full(len(posts.free), -math.log(len(posts.free)), log_shares.dtype)
    here = which[:, None] == jnp.arange(jobs)[None, :]
    every = jnp.sum(here, axis=0).astype(log_shares.dtype)
    free = jnp.sum(here & posts.free[:, None], axis=0).astype(log_shares.dtype)
    one = -math.log(int(np.sum(posts.free)))
    logs = jnp.where(free > 0, jnp.log(jnp.maximum(free, 1)) + one, jnp.minimum(log_shares, one))
    return jax.nn.log_softmax((logs - jnp.log(jnp.maximum(every, 1)))[which])
