"""How a belief changes as data come in, and where its predictive means may go from there."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irsppl.beliefs._base import Belief

# Points at which a CDF is read off for quantiles, over this many standard deviations either way.
_GRID = 801
_REACH = 8.0


class Evolution(NamedTuple):
    """On the host. Step 0 is before any data, step n after the first n rewards of all arms."""

    quantiles: np.ndarray  # [steps, levels, K] of the arms' mean rewards
    means: np.ndarray  # [steps, K] predictive means
    counts: np.ndarray  # [steps, K] rewards of each arm so far
    futures: np.ndarray  # [paths, K, horizon + 1] predictive means along sampled rewards to come


def evolution(
    belief: Belief,
    arms: np.ndarray,
    rewards: np.ndarray,
    levels: np.ndarray,
    horizon: int,
    num_paths: int,
    key: Array,
) -> Evolution:
    """Play the data in one by one, then sample futures of the belief that they leave."""
    points = jnp.asarray(levels)
    pictures = [_picture(belief, points)]
    for arm, reward in zip(arms, rewards, strict=True):
        belief = belief.update(int(arm), reward)
        pictures.append(_picture(belief, points))
    quantiles, means = (np.stack([np.asarray(p[i]) for p in pictures]) for i in (0, 1))
    pulled = np.asarray(arms, int)[:, None] == np.arange(belief.num_arms)
    counts = np.concatenate([np.zeros((1, belief.num_arms), int), np.cumsum(pulled, axis=0)])
    keys = jax.random.split(key, num_paths)
    return Evolution(quantiles, means, counts, np.asarray(_futures(belief, keys, horizon)))


@eqx.filter_jit
def _picture(belief: Belief, levels: Array) -> tuple[Float[Array, "L K"], Float[Array, " K"]]:
    """Quantiles of each arm's mean reward, and the predictive means."""
    mean, sd = belief.predictive_mean(), belief.mean_sd()
    steps = jnp.linspace(-_REACH, _REACH, _GRID, dtype=mean.dtype)
    grid = mean[None, :] + steps[:, None] * sd[None, :]
    cdf = jax.vmap(belief.cdf)(grid)  # [grid, K]
    # A CDF in float32 may wobble by a rounding error; a running maximum keeps it rising.
    cdf = jax.lax.cummax(cdf, axis=0)
    # Between the points of the grid, not at the next one: that would lie too high every time.
    at = jax.vmap(lambda c: jnp.searchsorted(c, levels.astype(c.dtype)), in_axes=1)(cdf)
    above = jnp.clip(at, 1, _GRID - 1).T  # [levels, K]
    ends = [jnp.take_along_axis(of, above - i, axis=0) for of in (grid, cdf) for i in (1, 0)]
    left, right, under, over = ends
    share = (levels.astype(under.dtype)[:, None] - under) / jnp.where(over > under, over - under, 1)
    return left + jnp.clip(share, 0, 1) * (right - left), mean


@eqx.filter_jit
def _futures(belief: Belief, keys: Array, horizon: int) -> Float[Array, "P K N"]:
    def one(key: Any) -> Array:
        return belief.along(belief.draw(key, horizon).rewards).own_means()

    return jax.lax.map(one, keys)
