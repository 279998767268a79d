"""Truncated normal laws that stay right however far the interval lies in a tail.

NumPyro's subtract two values of the normal CDF, which in float32 are equal beyond five standard
deviations: density, draws and mean are then infinite or NaN. Here everything is measured from the
point of the interval where the density is largest, so that nothing cancels.
"""

from __future__ import annotations

import copy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array
from numpyro.distributions import constraints

from irsppl.models._distributions import ZERO_INFLATED, Distribution, is_discrete

_CELLS = 32
_REACH = 40.0  # nats below the largest density, where the integrals end
_POINTS, _WEIGHTS = (np.asarray(part) for part in np.polynomial.legendre.leggauss(4))
_NEWTON = 4
_TRUNCATED = (
    dist.LeftTruncatedDistribution,
    dist.RightTruncatedDistribution,
    dist.TwoSidedTruncatedDistribution,
)


def stable(fn: Distribution) -> Distribution:
    """`fn`, or the same law in a form that does not underflow, and that knows its own support."""
    if isinstance(fn, ZERO_INFLATED) and not is_discrete(fn):
        # NumPyro validates against the base's support, which leaves out the zero.
        fn = copy.copy(fn)
        fn._validate_args = False
        return fn
    normal = isinstance(fn, _TRUNCATED) and type(fn.base_dist) is dist.Normal
    return TruncatedNormal(fn) if normal and fn.shape() == () else fn


class TruncatedNormal(dist.Distribution):
    """A scalar normal law, given that it lies in an interval."""

    pytree_data_fields = (
        "law",
        "sign",
        "origin",
        "scale",
        "slope",
        "edges",
        "below",
        "total",
        "shift",
    )

    def __init__(self, fn: Distribution):
        self.law = fn
        loc, scale = jnp.asarray(fn.base_dist.loc, float), fn.base_dist.scale
        low = jnp.asarray(getattr(fn, "low", -jnp.inf), float)
        high = jnp.asarray(getattr(fn, "high", jnp.inf), float)
        # Turned round where the interval lies below loc: the density falls from `origin` on.
        self.sign = jnp.where(high < loc, -1.0, 1.0)
        near = jnp.where(high < loc, high, low)
        far = jnp.where(high < loc, low, high)
        self.origin = jnp.where((low <= loc) & (loc <= high), loc, near)
        self.scale = scale
        self.slope = jnp.abs(self.origin - loc) / scale  # of minus the log density, at the origin
        # In units of scale from the origin, cut where the density has fallen by _REACH nats.
        fall = 2 * _REACH / (self.slope + jnp.sqrt(self.slope**2 + 2 * _REACH))
        start = jnp.maximum(self.sign * (near - self.origin) / scale, -fall)
        end = jnp.minimum(self.sign * (far - self.origin) / scale, fall)
        steps = jnp.linspace(0.0, 1.0, _CELLS + 1)
        self.edges = start + (end - start) * steps
        mass, first = self._integrals(self.edges[:-1], self.edges[1:])
        self.below = jnp.concatenate([jnp.zeros(1), jnp.cumsum(mass)])
        self.total = self.below[-1]
        self.shift = jnp.sum(first) / self.total
        super().__init__((), (), validate_args=False)

    def _density(self, y: Array) -> Array:
        """Relative to the origin's, at y."""
        return jnp.exp(-(self.slope * y + 0.5 * y**2))

    def _integrals(self, start: Array, end: Array) -> tuple[Array, Array]:
        """Of the relative density, and of y times it, from start to end."""
        half = 0.5 * (end - start)
        points = jnp.asarray(_POINTS, half.dtype).reshape((-1,) + (1,) * half.ndim)
        weights = jnp.asarray(_WEIGHTS, half.dtype).reshape(points.shape)
        y = start[None] + half[None] * (1 + points)
        part = weights * half[None] * self._density(y)
        return part.sum(0), (part * y).sum(0)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return self.law.support

    @property
    def mean(self) -> Array:
        return self.origin + self.sign * self.scale * self.shift

    def log_prob(self, value: Any) -> Array:
        y = self.sign * (value - self.origin) / self.scale
        inside = jnp.asarray(self.law.support(value))
        log_density = -(self.slope * y + 0.5 * y**2) - jnp.log(self.total * self.scale)
        return jnp.where(inside, log_density, -jnp.inf)

    def icdf(self, q: Any) -> Array:
        """Exact: the cell by its edges' masses, then Newton's steps within it."""
        q = jnp.asarray(q)
        target = jnp.where(self.sign > 0, q, 1 - q) * self.total
        cell = jnp.clip(jnp.searchsorted(self.below, target) - 1, 0, _CELLS - 1)
        start, end, base = self.edges[cell], self.edges[cell + 1], self.below[cell]
        share = (target - base) / jnp.maximum(self.below[cell + 1] - base, 1e-37)
        y = start + (end - start) * share
        for _ in range(_NEWTON):
            over = self._integrals(start, y)[0] - (target - base)
            y = jnp.clip(y - over / self._density(y), start, end)
        return self.origin + self.sign * self.scale * y

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Array:
        return self.icdf(jax.random.uniform(key, sample_shape, self.origin.dtype))
