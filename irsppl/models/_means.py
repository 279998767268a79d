"""The mean of a scalar law: NumPyro's own where there is one, a numerical one otherwise.

The numerical mean of a continuous law is a double-exponential trapezoid sum of x p(x), which
converges exponentially for densities that are smooth inside their support, whatever the tails and
the singularities at its ends. Laws made of others (mixtures, zero inflation, transforms) are taken
apart first. Every numerical mean comes with an estimate of its error.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array

from irsppl.models import _quantiles as quantiles
from irsppl.models._distributions import (
    WRAPPERS,
    ZERO_INFLATED,
    Distribution,
    in_support,
    is_discrete,
)
from irsppl.models._support import ends

_STEP = 0.025
_NODES = np.arange(-176, 177) * _STEP  # out to 1e24 scales: any finite mean has converged there
_COUNTS = 4096
_DRAWS = 256


class NoMean(Exception):
    """Neither a closed form nor a numerical mean applies."""


def closed_mean(fn: Distribution) -> Array | None:
    """`fn.mean`, or None where NumPyro has none. May be NaN or infinite."""
    try:
        mean = jnp.asarray(fn.mean)
    except (NotImplementedError, AttributeError, ImportError, TypeError):
        return None
    return mean.reshape(()) if mean.size == 1 else None


def numerical_mean(fn: Distribution) -> tuple[Array, Array]:
    """(mean, estimated absolute error) of a scalar law; infinite where the mean is."""
    if isinstance(fn, WRAPPERS):
        return numerical_mean(fn.base_dist)
    if isinstance(fn, ZERO_INFLATED):
        mean, error = _part_mean(fn.base_dist)
        share = 1 - fn.gate
        if "Hurdle" in type(fn).__name__ and is_discrete(fn.base_dist):
            share = share / -jnp.expm1(fn.base_dist.log_prob(jnp.zeros((), int)))
        return share * mean, share * error
    if isinstance(fn, dist.MixtureGeneral):
        parts = [_part_mean(component) for component in fn.component_distributions]
        probs = fn.mixing_distribution.probs
        means, errors = (jnp.stack(column) for column in zip(*parts, strict=True))
        return jnp.sum(probs * means), jnp.sum(probs * errors)
    if fn.shape() != ():
        raise NoMean
    if is_discrete(fn):
        return _count_mean(fn)
    if isinstance(fn, dist.TransformedDistribution) and not isinstance(fn, dist.FoldedDistribution):
        if fn.base_dist.shape() != () or is_discrete(fn.base_dist):
            return _sample_mean(fn)
        return _integral(fn.base_dist, fn.transforms)
    return _integral(fn, [])


def _part_mean(fn: Distribution) -> tuple[Array, Array]:
    mean = closed_mean(fn)
    if mean is None:
        return numerical_mean(fn)
    return mean, jnp.zeros(())


def _count_mean(fn: Distribution) -> tuple[Array, Array]:
    low, _, _, _, _ = ends(fn)
    counts = jnp.where(jnp.isfinite(low), low, 0.0) + jnp.arange(_COUNTS)
    probs = jnp.where(in_support(fn, counts), jnp.exp(fn.log_prob(counts.astype(int))), 0.0)
    total = jnp.sum(probs)
    # What lies beyond the last count weighs at least that much.
    return jnp.sum(counts * probs) / total, jnp.abs(1 - total) * _COUNTS


def _sample_mean(fn: Distribution) -> tuple[Array, Array]:
    """An average of draws from one fixed key: the last resort."""
    draws = fn.sample(jax.random.key(20), (_COUNTS,))
    return jnp.mean(draws), jnp.std(draws) / np.sqrt(_COUNTS)


def _integral(fn: Distribution, transforms: list) -> tuple[Array, Array]:
    """Mean of the transformed draws of a scalar continuous law."""
    low, high, _, _, _ = ends(fn)
    # A scale for the nodes; the result hardly depends on it.
    q1, centre, q3 = _quartiles(fn)
    spread = jnp.maximum((q3 - q1) / 1.35, jnp.finfo(centre.dtype).tiny)
    # An end far from the bulk is left to the nodes of an unbounded law, which are dense around it.
    low = jnp.where(centre - low < 8 * spread, low, -jnp.inf)
    high = jnp.where(high - centre < 8 * spread, high, jnp.inf)
    t = jnp.asarray(_NODES, centre.dtype)
    half = 0.5 * np.pi * jnp.sinh(t)
    speed = 0.5 * np.pi * jnp.cosh(t)
    scale_low = jnp.maximum(centre - low, spread * 1e-3)
    scale_high = jnp.maximum(high - centre, spread * 1e-3)
    width = high - low
    maps = [
        # the whole line, a half line either way, an interval
        (centre + spread * jnp.sinh(half), spread * jnp.cosh(half) * speed),
        (low + scale_low * jnp.exp(half), scale_low * jnp.exp(half) * speed),
        (high - scale_high * jnp.exp(-half), scale_high * jnp.exp(-half) * speed),
        (
            low + width * jax.nn.sigmoid(2 * half),
            2 * width * jax.nn.sigmoid(2 * half) * jax.nn.sigmoid(-2 * half) * speed,
        ),
    ]
    kind = jnp.isfinite(low) + 2 * jnp.isfinite(high)
    x = jnp.select([kind == i for i in range(4)], [each[0] for each in maps])
    jacobian = jnp.select([kind == i for i in range(4)], [each[1] for each in maps])
    ok = in_support(fn, x) & jnp.isfinite(jacobian)
    safe = jnp.where(ok, x, centre)
    weight = jnp.where(ok, jnp.exp(fn.log_prob(safe) + jnp.log(jacobian)), 0.0) * _STEP
    weight = jnp.where(jnp.isfinite(weight), weight, 0.0)
    y = safe
    for transform in transforms:
        y = transform(y)
    part = jnp.where(weight > 0, y * weight, 0.0)

    total = jnp.sum(weight)
    mean = jnp.sum(part) / total
    coarse = jnp.sum(part[::2]) / jnp.sum(weight[::2])
    scale = jnp.sum(jnp.abs(part)) / total
    error = jnp.abs(mean - coarse) + jnp.abs(1 - total) * scale
    # A finite mean has died out at the last nodes that carry any weight; an infinite one has not.
    size = jnp.abs(part)
    alive = weight > 0
    tips = jnp.stack([jnp.argmax(alive), alive.shape[0] - 1 - jnp.argmax(alive[::-1])])
    dead = jnp.max(size[tips]) <= 1e-3 * jnp.max(size)
    bounded = jnp.max(jnp.abs(y[tips])) <= 1e4 * scale
    return jnp.where(dead | bounded, mean, jnp.inf), error


def _quartiles(fn: Distribution) -> Array:
    levels = jnp.array([0.25, 0.5, 0.75])
    try:
        return quantiles.icdf(fn, levels)
    except quantiles.NoInverse:
        draws = fn.sample(jax.random.key(10), (_DRAWS,))
        return jnp.percentile(draws, 100 * levels)
