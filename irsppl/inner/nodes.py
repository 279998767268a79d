"""Quadrature nodes, and E[max] of independent numbers over a count lattice."""

from __future__ import annotations

import string
from functools import lru_cache

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


@lru_cache(maxsize=16)
def _unit_legendre(count: int) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return (nodes + 1) / 2, weights / 2


def legendre(low: Array, high: Array, count: int) -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights on [low, high] (traced ends allowed), each `[count]`."""
    nodes, weights = _unit_legendre(count)
    low, high = jnp.asarray(low), jnp.asarray(high)
    dtype = jnp.result_type(low, high)
    width = high - low
    return low + width * jnp.asarray(nodes, dtype), width * jnp.asarray(weights, dtype)


def graded(low: Array, high: Array, center: Array, width: Array, count: int) -> tuple[Array, Array]:
    """Nodes and weights on [low, high], dense within `width` of `center` and sparse in the tails.

    Gauss-Legendre in u, where x = center + width sinh(u).
    """
    ends = jnp.arcsinh((low - center) / width), jnp.arcsinh((high - center) / width)
    u, weights = legendre(*ends, count)
    return center + width * jnp.sinh(u), weights * width * jnp.cosh(u)


def expected_best_lattice(
    cdf: Float[Array, "K N J"], weights: Float[Array, " J"], high: Array
) -> Float[Array, "..."]:
    """E[max_a X_a] = high - integral of prod_a F_a, for every combination of path points.

    The same nodes serve the whole lattice: each F_a(x_j) is then a martingale along its path, and
    so is the result, which is what dual feasibility of IRS.V-EMax needs.
    """
    num_arms = cdf.shape[0]
    letters = string.ascii_lowercase[:num_arms]
    terms = ",".join(f"{letter}z" for letter in letters)
    integral = jnp.einsum(f"{terms},z->{letters}", *cdf, weights, optimize="greedy")
    return high - integral
