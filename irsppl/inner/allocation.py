"""Max-plus allocation: how to divide `total` pulls among arms with given cumulative payoffs.

The JAX solver is for accelerators and traced code; on the CPU, batches go to the numba kernel.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int


def allocate(
    payoffs: Float[Array, "K N+1"], total: Int[Array, ""]
) -> tuple[Float[Array, ""], Int[Array, " K"]]:
    """max of sum_a payoffs[a, n_a] over n_1 + ... + n_K = total, and its counts; O(K N^2).

    `total` may be traced, at most N. Among optimal counts each arm, from the last to the first,
    takes the fewest.
    """
    num_arms, size = payoffs.shape

    def add_arm(best: Array, row: Array) -> tuple[Array, Array]:
        # best[n]: most that the arms so far earn with n pulls. out[n] = max_m best[n - m] + row[m].
        padded = jnp.concatenate([jnp.full(size, -jnp.inf, best.dtype), best])

        def shift(out: Array, pull: tuple[Array, Array]) -> tuple[Array, None]:
            m, payoff = pull
            moved = jax.lax.dynamic_slice(padded, (size - m,), (size,))
            return jnp.maximum(out, moved + payoff), None

        # Several shifts per loop body: XLA's CPU loops are dominated by loads of `out`.
        out, _ = jax.lax.scan(shift, best + row[0], (jnp.arange(size), row), unroll=8)
        return out, best

    start = jnp.full(size, -jnp.inf, payoffs.dtype).at[0].set(0)
    best, before = jax.lax.scan(add_arm, start, payoffs)

    def take(left: Array, arm: Array) -> tuple[Array, Array]:
        m = jnp.arange(size)
        rest = before[arm][jnp.clip(left - m, 0, size - 1)]
        gain = jnp.where(m <= left, rest + payoffs[arm], -jnp.inf)
        count = jnp.argmax(gain).astype(left.dtype)
        return left - count, count

    _, counts = jax.lax.scan(take, jnp.asarray(total), jnp.arange(num_arms)[::-1])
    return best[total], counts[::-1].astype(jnp.int32)


_allocate_many = jax.jit(jax.vmap(allocate))


def allocate_batch(payoffs: np.ndarray, total: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """`allocate` for each of `[S, K, T+1]`, T pulls or as many as `total` says, one number or [S].

    Values [S], counts [S, K].
    """
    if jax.default_backend() == "cpu":
        from irsppl.inner.cpu.allocation import allocate_batch as kernel

        return kernel(payoffs, total)
    totals = np.asarray(payoffs.shape[2] - 1 if total is None else total)
    values, counts = _allocate_many(payoffs, np.broadcast_to(totals, (len(payoffs),)))
    return np.asarray(values), np.asarray(counts)
