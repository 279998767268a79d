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


def round_centers(
    low: Array, high: Array, centers: Float[Array, " K"], widths: Float[Array, " K"], count: int
) -> tuple[Array, Array]:
    """Nodes and weights on [low, high], each `[2 K count]`: dense round centers, sparse far off.

    To both sides of each center, as far as half-way to the next, Gauss-Legendre in u, where
    x = center + width sinh(u): a node's distance to the next grows with that to its center.
    """
    order = jnp.argsort(centers)
    centers, widths = jnp.clip(centers[order], low, high), widths[order]
    between = (centers[1:] + centers[:-1]) / 2
    lows = jnp.concatenate([low[None], between])
    highs = jnp.concatenate([between, high[None]])
    ends = jnp.stack([lows - centers, highs - centers])  # [2, K]
    ends = jnp.arcsinh(ends / widths[None, :])[..., None]
    centers, widths = centers[None, :, None], widths[None, :, None]
    nodes, weights = (jnp.asarray(x, ends.dtype)[None, None, :] for x in _unit_legendre(count))
    u = ends * nodes
    x, slope = centers + widths * jnp.sinh(u), widths * jnp.cosh(u)
    return x.ravel(), (jnp.abs(ends) * weights * slope).ravel()


def expected_best_lattice(
    cdf: Float[Array, "K N J"], weights: Float[Array, " J"], high: Array
) -> Float[Array, "..."]:
    """E[max_a X_a] = high - integral of prod_a F_a, for every combination of path points.

    With nodes that no reward moves each F_a(x_j) is a martingale along its path, and so is the
    result, which is what dual feasibility of IRS.V-EMax needs; with others up to their error.
    """
    num_arms = cdf.shape[0]
    letters = string.ascii_lowercase[:num_arms]
    terms = ",".join(f"{letter}z" for letter in letters)
    integral = jnp.einsum(f"{terms},z->{letters}", *cdf, weights, optimize="greedy")
    return high - integral
