"""Allocation when an arm's payoffs become constant after its first n0 pulls.

Arm a pays `prefix[a, 0..n0-1]` for its first pulls and `later[a]` for every further one. Two arms
beyond n0 pulls are never needed: moving the surplus of one to the better slope of the other loses
nothing. Hence two cases, neither of which grows with the number of pulls:

- total >= K n0: some arm b has at least n0 pulls and takes all that the others leave, so each of
  the others is weighed on its own against the slope of b,

      max_b  total v_b + (P_b(n0) - n0 v_b) + sum_{a != b} max_{m <= n0} (P_a(m) - m v_b),

  with P_a(m) the sum of its first m payoffs and v = `later`: O(K^2 n0), no convolution;
- total < K n0: the plain max-plus allocation, O(K (K n0)^2) at most.

The JAX solver is for accelerators and traced code; on the CPU, batches go to the numba kernel.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from irsppl.inner.allocation import allocate


def mix(
    prefix: Float[Array, "K n0"], later: Float[Array, " K"], total: Int[Array, ""], most: int
) -> tuple[Float[Array, ""], Int[Array, " K"]]:
    """The best value of `total` pulls and their counts; `total` may be traced, at most `most`.

    Among equally good takers b the lowest index is meant, and every other arm has the fewest pulls
    that attain the best value; in the second case ties are those of `allocate`.
    """
    num_arms, n0 = prefix.shape
    total = jnp.asarray(total)
    size = min(most, num_arms * n0)
    if most < num_arms * n0:
        return _short(prefix, later, total, size)
    return jax.lax.cond(
        total >= num_arms * n0,
        lambda: _long(prefix, later, total),
        lambda: _short(prefix, later, jnp.minimum(total, size), size),
    )


def _short(prefix: Array, later: Array, total: Array, size: int) -> tuple[Array, Array]:
    num_arms, n0 = prefix.shape
    beyond = jnp.broadcast_to(later[:, None], (num_arms, max(size - n0, 0)))
    steps = jnp.concatenate([prefix, beyond], axis=1)[:, :size]
    return allocate(jnp.pad(jnp.cumsum(steps, axis=1), ((0, 0), (1, 0))), total)


def _long(prefix: Array, later: Array, total: Array) -> tuple[Array, Array]:
    num_arms, n0 = prefix.shape
    sums = jnp.pad(jnp.cumsum(prefix, axis=1), ((0, 0), (1, 0)))
    m = jnp.arange(n0 + 1, dtype=prefix.dtype)
    # [b, a, m]: what m pulls of arm a bring over as many of arm b at its slope.
    excess = sums[None, :, :] - later[:, None, None] * m[None, None, :]
    counts = jnp.argmax(excess, axis=2).astype(jnp.int32)
    gains = jnp.max(excess, axis=2)
    arms = jnp.arange(num_arms)
    taker = arms[:, None] == arms[None, :]
    gains = jnp.where(taker, excess[:, :, -1], gains)
    counts = jnp.where(taker, 0, counts)
    # Relative to the best slope: in float32, total * slope would drown the differences.
    top = jnp.max(later)
    scores = total.astype(prefix.dtype) * (later - top) + gains.sum(axis=1)
    best = jnp.argmax(scores)
    pulls = counts[best]
    pulls = pulls.at[best].set((total - pulls.sum()).astype(jnp.int32))
    return total.astype(prefix.dtype) * top + scores[best], pulls


_mix_many = jax.jit(jax.vmap(mix, in_axes=(0, 0, None, None)), static_argnums=3)


def mix_batch(
    prefix: Float[np.ndarray, "S K n0"], later: Float[np.ndarray, "S K"], total: int
) -> tuple[np.ndarray, np.ndarray]:
    """`mix` for each of a batch: values [S], counts [S, K]."""
    if jax.default_backend() == "cpu":
        from irsppl.inner.cpu.mixture import mix_batch as kernel

        return kernel(prefix, later, total)
    values, counts = _mix_many(prefix, later, total, total)
    return np.asarray(values), np.asarray(counts)
