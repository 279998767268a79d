"""Small questions about NumPyro distributions that NumPyro itself does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array
from numpyro.distributions import constraints

# NumPyro's classes are typed too loosely for a checker to know their parameters.
Distribution: Any = dist.Distribution

WRAPPERS = (dist.ExpandedDistribution, dist.Independent, dist.MaskedDistribution)
ZERO_INFLATED = (dist.ZeroInflatedProbs, dist.HurdleProbs)
CATEGORICAL = (dist.CategoricalProbs, dist.CategoricalLogits)
CENSORED = (
    dist.LeftCensoredDistribution,
    dist.RightCensoredDistribution,
    dist.IntervalCensoredDistribution,
)


def unwrap(fn: Distribution) -> Distribution:
    """The distribution inside expansions, event dimensions and masks."""
    while isinstance(fn, WRAPPERS):
        fn = fn.base_dist
    return fn


def layers(fn: Distribution) -> Iterator[Distribution]:
    """`fn` and every distribution it is built from."""
    yield fn
    inner = getattr(fn, "base_dist", None)
    if isinstance(inner, Distribution):
        yield from layers(inner)
    if isinstance(fn, dist.MixtureSameFamily):
        yield from layers(fn.component_distribution)
    if isinstance(fn, dist.MixtureGeneral):
        for component in fn.component_distributions:
            yield from layers(component)


def is_discrete(fn: Distribution) -> bool:
    return bool(getattr(fn.support, "is_discrete", False))


def plain_constraint(support: Any) -> Any:
    while isinstance(support, type(constraints.independent(constraints.real, 1))):
        support = support.base_constraint
    return support


def in_support(fn: Distribution, value: Array) -> Array:
    """Whether a scalar `value` can come from the scalar law `fn`, given its parameters.

    NumPyro's densities do not say so: without validation many of them return a finite number or
    NaN outside the support.
    """
    if isinstance(fn, WRAPPERS):
        return in_support(fn.base_dist, value)
    if isinstance(fn, ZERO_INFLATED):
        # The support NumPyro reports is the base's, which may leave out the zero.
        return (value == 0) | in_support(fn.base_dist, value)
    if isinstance(fn, dist.MixtureGeneral):
        inside = in_support(fn.component_distributions[0], value)
        for component in fn.component_distributions[1:]:
            inside = inside | in_support(component, value)
        return inside
    if isinstance(fn, dist.FoldedDistribution):
        return jnp.isfinite(value) & (value >= 0)
    if isinstance(fn, dist.TransformedDistribution) and not fn.base_dist.event_shape:
        inside = jnp.asarray(fn.transforms[-1].codomain(value))
        for transform in reversed(fn.transforms):
            value = transform.inv(value)
        return inside & in_support(fn.base_dist, value)
    return jnp.isfinite(value) & jnp.asarray(fn.support(value))
