"""Whether a cloud that has been moved is still on its way.

A move keeps the posterior: a cloud that stood for it has, but for chance, the same means after as
before. Two tests ask whether it does. One compares a cloud with itself some moves ago, sub-cloud by
sub-cloud. The other compares it with what proposals that reach beyond it have found, as weighed by
importance: that needs no move to have been accepted yet.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from irsppl.beliefs._proposals import Offers, Unconstrained
from irsppl.beliefs._subclouds import num_parts, standard_error

# Chances of a false alarm of each test; one costs a round. (Only alarms that outlast all rounds
# reach the stated error.)
_FALSE_ALARM = 0.005
# Fewer effective proposals have no error that could be trusted.
_TRUSTED = 8.0


def part_means(columns: Float[Array, "N F"], part: Int[np.ndarray, " N"]) -> Float[Array, "P F"]:
    sizes = np.bincount(part)
    sums = jax.ops.segment_sum(columns, jnp.asarray(part), len(sizes))
    return sums / jnp.asarray(sizes, columns.dtype)[:, None]


def drifted(before: Float[Array, "P F"], now: Float[Array, "P F"]) -> Bool[Array, ""]:
    """Whether any mean has changed by more than the sub-clouds' changes differ (Student's t)."""
    from scipy.special import stdtrit

    parts, columns = before.shape
    if parts < 3 or not columns:
        return jnp.asarray(False)
    limit = float(stdtrit(parts - 1, 1 - _FALSE_ALARM / 2 / columns))
    change = now - before
    mean, spread = jnp.mean(change, axis=0), jnp.std(change, axis=0, ddof=1)
    # Columns that do not vary change by rounding all the same.
    size = jnp.max(jnp.abs(before) + jnp.abs(now), axis=0)
    rounding = 16 * float(jnp.finfo(now.dtype).eps) * size
    return jnp.any(jnp.abs(mean) > limit * spread / parts**0.5 + rounding)


class Found(NamedTuple):
    """As many proposals as a cloud has points, drawn by importance."""

    points: Unconstrained
    ess: Float[Array, ""]  # of the proposals that they were drawn from
    log_shares: Float[Array, " J"]  # log-probabilities of the combinations, by all proposals

    @property
    def trusted(self) -> Bool[Array, ""]:
        return self.ess >= _TRUSTED


def found(offers: Offers, jobs: int, key: Array) -> Found:
    """Systematic resampling of all offers of `jobs` combinations, however many each was given."""
    count = offers.scores.shape[1]
    here = offers.which[None] == jnp.arange(jobs)[:, None, None]
    number = jnp.log(jnp.sum(here, axis=(1, 2)).astype(offers.scores.dtype))
    logs = offers.scores_within - number[offers.which]
    possible = jnp.any(logs > -jnp.inf)
    logs = jnp.where(possible, logs, 0)
    shares = jax.scipy.special.logsumexp(jnp.where(here, logs[None], -jnp.inf), axis=(1, 2))
    weights = jax.nn.softmax(logs.reshape(-1))
    filled = jnp.cumsum(weights)
    levels = (jnp.arange(count) + jax.random.uniform(key, (), filled.dtype)) / count * filled[-1]
    chosen = jnp.minimum(jnp.searchsorted(filled, levels, side="right"), len(filled) - 1)
    every = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), offers.points)
    points = jax.tree.map(lambda leaf: leaf[chosen], every)
    ess = jnp.where(possible, 1 / jnp.sum(weights**2), 0)
    return Found(points, ess, jax.nn.log_softmax(shares))


def gap(
    values: Float[Array, "N K"],
    weights: Float[Array, " N"],
    others: Float[Array, "N K"],
    ess: Float[Array, ""],
    part: Int[np.ndarray, " N"],
) -> Float[Array, " K"]:
    """By how much the means of a cloud differ from those of found points (`others`, worth `ess`);
    zero unless beyond their combined errors."""
    from scipy.special import ndtri

    error = standard_error(values, weights, jnp.asarray(part), 1 / jnp.sum(weights**2))
    worth = jnp.minimum(ess, len(part) / 2)  # systematic draws of them add something
    variance = jnp.var(others, axis=0) / jnp.maximum(worth, 1)
    off = jnp.abs(weights @ values - jnp.mean(others, axis=0))
    limit = float(-ndtri(_FALSE_ALARM / 2 / max(values.shape[1], 1)))
    beyond = off > limit * jnp.sqrt(variance + error**2)
    enough = (ess >= _TRUSTED) & (num_parts(len(part)) > 1)
    return jnp.where(beyond & enough, off, 0)
