"""Sub-clouds: parts of a cloud that never meet, so that their disagreement is the cloud's error.

Weights tell how many points carry a belief, not whether moves have brought those points to where
the posterior is. So a cloud is made of parts; each is resampled and moved within itself, with dice
of its own, and what moves have failed to do shows as a spread of the parts' means. (All parts
start from one prior: a region that none of them, and no proposal, has seen is not noticed.)
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

# Sixteen parts leave fifteen degrees of freedom; parts of fewer than sixteen points would each be
# too crude for resampling within.
_MOST_PARTS = 16
_LEAST_POINTS = 16
# Below so many effective points nothing can be said of an error.
_DEAD = 10.0
# A belief is poor when its error is above this share of its standard deviation: a cloud of 1,024
# points that mixes has 0.03 to 0.05, and one whose sixteen parts are each stuck at a point 0.27.
# Small clouds are as good as they can be at three times what as many independent points have.
_POOR = 0.15
_POOR_TIMES = 3.0
_OURS = ("irsppl.", "equinox.")


class InaccurateBeliefWarning(UserWarning):
    """A cloud of particles does not represent its posterior well; the message says how badly."""


def num_parts(count: int) -> int:
    return max(1, min(_MOST_PARTS, count // _LEAST_POINTS))


def parts_of(count: int) -> Int[np.ndarray, " N"]:
    """The part of each point of an evenly spread set: dealt in turn, so that each part is even."""
    return np.arange(count) % num_parts(count)


def widening(parts: int) -> float:
    """Two standard errors cover 95 % also where the error is estimated from few parts."""
    from scipy.special import ndtri, stdtrit

    return float(stdtrit(parts - 1, 0.975) / ndtri(0.975))


def resample(
    key: Array,
    log_weights: Float[Array, " N"],
    part: Int[np.ndarray, " N"],
    wanted: Bool[np.ndarray, " N"] | None = None,
) -> Int[Array, " N"]:
    """Systematic resampling within each part; the points are in the order of their parts.

    Each part is given as many points as it had: moves on the posterior make the parts equally good.
    wanted: places that are given one, the first of each part; what the others get says nothing.
    """
    sizes = np.bincount(part)
    start = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    top = jax.ops.segment_max(log_weights, jnp.asarray(part), len(sizes))[part]
    weights = jnp.where(top > -jnp.inf, jnp.exp(log_weights - top), 1)
    totals = jax.ops.segment_sum(weights, jnp.asarray(part), len(sizes))[part]
    # One search for all parts: part s fills the interval from s to s + 1.
    filled = jnp.cumsum(weights / totals)
    shift = jax.random.uniform(key, (len(sizes),), filled.dtype)[part]
    given = sizes if wanted is None else np.bincount(part, wanted)
    rank = np.minimum(np.arange(len(part)) - start[part], given[part] - 1)
    asked = (jnp.asarray(rank) + shift) / jnp.asarray(given[part], filled.dtype) + part
    place = jnp.searchsorted(filled, asked.astype(filled.dtype), side="right")
    return jnp.clip(place, start[part], (start + sizes - 1)[part])


def thin(
    weights: Float[np.ndarray, "C N"],
    part: Int[np.ndarray, "C N"],
    means: Float[np.ndarray, "C N"],
    count: int,
) -> Int[np.ndarray, "C M"]:
    """`count` points of each cloud that stand for all of it, by rising means, each part for itself.

    They weigh the same: of even weights every so-manyth point is taken.
    """
    chosen = np.empty((len(weights), count), np.int64)
    sizes = np.bincount(parts_of(count), minlength=num_parts(count))
    for c, own in enumerate(weights):
        order = np.argsort(means[c], kind="stable")
        picked = []
        for number, size in enumerate(sizes):
            mine = order[part[c][order] == number]
            edges = np.cumsum(own[mine])
            levels = (np.arange(size) + 0.5) / size * edges[-1]
            picked.append(mine[np.minimum(np.searchsorted(edges, levels), len(mine) - 1)])
        every = np.concatenate(picked)
        chosen[c] = every[np.argsort(means[c][every], kind="stable")]
    return chosen


def standard_error(
    values: Float[Array, "N K"],
    weights: Float[Array, " N"],
    part: Int[Array, " N"],
    ess: Float[Array, ""],
) -> Float[Array, " K"]:
    """Error of the weighted means of `values`: the larger of two estimates.

    One is what `ess` independent points would have; the other the disagreement of the parts, of
    the weighted mean as a ratio of sums over parts, widened because parts are few. Infinite for a
    cloud with hardly any effective point or with all its weight in one part.
    """
    count, parts = values.shape[0], num_parts(values.shape[0])
    mean = weights @ values
    off = weights[:, None] * (values - mean[None, :])
    plain = jnp.sqrt(jnp.sum(off * (values - mean[None, :]), axis=0) / ess)
    dead = ess < min(_DEAD, count / 2)
    if parts == 1:
        return jnp.where(dead, jnp.inf, plain)
    sums = jax.ops.segment_sum(off, part, parts)
    spread = widening(parts) * jnp.sqrt(parts / (parts - 1) * jnp.sum(sums**2, axis=0))
    share = jax.ops.segment_sum(weights, part, parts)
    dead = dead | (jnp.sum(share**2) > 0.5)
    return jnp.where(dead, jnp.inf, jnp.maximum(plain, spread))


def _poor_share(count: int) -> float:
    parts = num_parts(count)
    unsure = widening(parts) if parts > 1 else 2.0
    return max(_POOR, _POOR_TIMES * unsure / math.sqrt(count))


def is_poor(error: Array, sd: Array, count: int) -> Array:
    """Whether an error is large beside the standard deviation it belongs to."""
    return error > _poor_share(count) * sd


def warn_poor(
    arms: Sequence[int], ess: np.ndarray, error: np.ndarray, sd: np.ndarray, count: int
) -> None:
    """`[K]` arrays; the arms that are poor."""
    worst = max(arms, key=lambda a: error[a] / sd[a] if sd[a] > 0 else np.inf)
    with np.errstate(all="ignore"):
        relative = error[worst] / sd[worst]
    size = (
        f"{relative:.2g} posterior standard deviations"
        if np.isfinite(relative)
        else "beyond estimate"
    )
    which = f"arm {worst}" if len(arms) == 1 else f"arms {list(arms)}, worst of them {worst}"
    warnings.warn(
        f"the particle belief about {which} is inaccurate: the error of its mean reward is {size} "
        f"(effective sample size {ess[worst]:.0f} of {count}) although its points have been moved. "
        "Use more particles (num_particles=), write the model with fewer or less dependent latents "
        "(scale times standard normal instead of a normal of unknown scale), or a representation "
        "without sampling; mean_error() tells the error from now on, and this warning comes once.",
        InaccurateBeliefWarning,
        stacklevel=_users_level(),
    )


def too_few(ess: np.ndarray, count: int) -> np.ndarray:
    """Whether so many effective points, of `count`, leave an error that is called poor."""
    return ess * _poor_share(count) ** 2 < 1


def warn_simulated(label: str, ess: np.ndarray, poor: np.ndarray, moved: bool) -> None:
    """`[S]`: the least effective sample sizes of replications, and which of them were poor."""
    what = "although its points were moved" if moved else "because its points were only reweighted"
    warnings.warn(
        f"policy {label!r}: in {int(poor.sum()):,} of {len(poor):,} replications a particle belief "
        f"was inaccurate {what}; the least effective sample size was {np.nanmin(ess):.3g}, its "
        f"median {np.nanmedian(ess):.3g}. Regret is that of the policy with such beliefs. Use more "
        "particles (num_particles=), a model with fewer or less dependent latents, or a "
        "representation without sampling; effective_sample_size in the result has the numbers",
        InaccurateBeliefWarning,
        stacklevel=_users_level(),
    )


def _users_level() -> int:
    """The `stacklevel` at which the caller of the package stands, for a warning one frame up."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_OURS):
        level, frame = level + 1, frame.f_back
    return level
