"""Evenly spread numbers: uniform one by one, and less uneven together than independent ones."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int


def even_uniforms(
    key: Array, steps: int, part: Int[np.ndarray, " N"], dim: int
) -> Float[Array, "steps N d"]:
    """Uniform draws that are evenly spread over the points of each part, in each step.

    Each alone is uniform, which is all that a point's own chain needs; together they vary less
    than independent ones. Randomly shifted lattices, one for each part, dealt to its points at
    random; parts share nothing.
    """
    shift_key, deal_key = jax.random.split(key)
    count, parts = len(part), int(part.max()) + 1
    shift = jax.random.uniform(shift_key, (steps, parts, dim))[:, part]
    sizes = np.bincount(part)
    start = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    place = np.arange(count) - start[part]
    lattice = jnp.asarray(kronecker(int(sizes.max()), dim)[place], shift.dtype)
    even = (lattice[None] + shift) % 1
    order = jnp.argsort(jax.random.uniform(deal_key, (steps, count)) + jnp.asarray(part)[None], 1)
    even = jax.vmap(lambda table, order: table[order])(even, order)
    tiny = float(jnp.finfo(even.dtype).eps)
    return jnp.clip(even, tiny, 1 - tiny)


def kronecker(count: int, dim: int) -> np.ndarray:
    """`[count, dim]` points of the unit cube, evenly spread.

    Steps are powers of the inverse of the root of x^(d+1) = x + 1 (the plastic number's kin).
    """
    root = 1.5
    for _ in range(60):
        root = (1 + root) ** (1 / (dim + 1))
    steps = np.array([math.pow(root, -(i + 1)) for i in range(dim)])
    return np.outer(np.arange(count), steps) % 1.0
