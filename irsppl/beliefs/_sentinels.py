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
    key: Array,
) -> Unconstrained:
    """Points of a cloud for all places: `chosen` for those that are free, for sentinels any of
    their combination, of their own sub-cloud if it has one, or else a draw from the prior."""
    start = jax.tree.map(lambda leaf: leaf[chosen], cloud)
    places = np.flatnonzero(~posts.free)
    if task.combinations is None or not len(places):
        return start
    pick_key, draw_key = jax.random.split(key)
    own = posts.own[places]
    member = task.member(cloud)[:, own].T & (log_weights > -jnp.inf)[None, :]  # [n, N]
    near = member & jnp.asarray(task.part[places][:, None] == task.part[None, :])
    from_all = jnp.where(jnp.any(near, axis=1)[:, None], near, member)
    logs = jnp.where(from_all, log_weights[None, :], -jnp.inf)
    filled = jnp.cumsum(jnp.exp(logs - jnp.max(logs, axis=1, keepdims=True)), axis=1)
    levels = jax.random.uniform(pick_key, (len(places), 1), filled.dtype) * filled[:, -1:]
    picked = jnp.minimum(jnp.sum(filled <= levels, axis=1), log_weights.shape[0] - 1)
    any_there = jnp.any(from_all, axis=1)
    combination = {name: jnp.asarray(x)[own] for name, x in task.combinations.items()}
    drawn = jax.vmap(task.model.sample_beside)(combination, jax.random.split(draw_key, len(places)))
    z = jnp.where(any_there[:, None], cloud.z[picked], drawn.astype(cloud.z.dtype))
    discrete = {
        name: leaf.at[places].set(combination[name].astype(leaf.dtype))
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
