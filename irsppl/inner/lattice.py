"""Deterministic dynamic programming over the lattice of pull counts."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

# (N+1)^K cells of float32 and of actions must fit beside each other for a few lanes.
MAX_CELLS = 20_000_000


def check_size(
    name: str, num_arms: int, horizon: int, instead: str = "'irs.v-zero' or 'irs.index'"
) -> None:
    """Refuse a lattice that cannot fit, with its size and what to use instead."""
    cells = (horizon + 1) ** num_arms
    if cells > MAX_CELLS:
        states = math.comb(horizon + num_arms, num_arms)
        raise ValueError(
            f"{name} plans over the lattice of pull counts: {num_arms} arms and horizon {horizon} "
            f"give {states:.3g} count vectors in a table of {cells:.3g} cells, more than the "
            f"{MAX_CELLS:.0e} that fit; use {instead}, or a shorter horizon"
        )


def solve_lattice(
    payoff: Float[Array, "K ..."],
    total: Int[Array, ""],
    num_arms: int,
    size: int,
    allowed: Bool[Array, "K ..."] | None = None,
) -> tuple[Float[Array, ""], Int[Array, " N"]]:
    """Best order of `total` pulls when pulling a at counts n pays `payoff[a, n_1, ..., n_K]`.

    payoff: `[K] + [size] * K`; total (traced) <= size - 1. Returns the value and the sequence
    `[size - 1]`, -1 after `total`. Ties go to the lowest arm, in the first period first.

    allowed: whether arm a may be pulled at counts n, shaped like payoff. With it, fewer than
    `total` pulls will do: the sequence is -1 from where nothing is allowed or to be gained.

    Layer t holds the counts with sum t, indexed by all but the last arm.
    """
    if allowed is not None and allowed.shape != payoff.shape:
        raise ValueError(f"allowed must have payoff's shape {payoff.shape}, got {allowed.shape}")
    inner = (size,) * (num_arms - 1)
    grids = jnp.meshgrid(*[jnp.arange(size)] * (num_arms - 1), indexing="ij") if inner else []
    used = sum(grids) if grids else jnp.zeros((), jnp.int32)

    def layer(later: Array, t: Array) -> tuple[Array, Array]:
        last = t - used
        inside = (last >= 0) & (last < size)
        at = (*grids, jnp.clip(last, 0, size - 1))
        gains = []
        for arm in range(num_arms):
            moved = later if arm == num_arms - 1 else _shift(later, arm)
            gain = payoff[arm][at] + moved
            gains.append(gain if allowed is None else jnp.where(allowed[arm][at], gain, -jnp.inf))
        table = jnp.stack(gains)
        best, choice = table.max(0), jnp.argmax(table, axis=0)
        if allowed is not None:
            choice = jnp.where(best > 0, choice, -1)
            best = jnp.maximum(best, 0)
        return jnp.where(inside & (t < total), best, 0), choice.astype(jnp.int8)

    periods = jnp.arange(size - 1)[::-1]
    first, actions = jax.lax.scan(layer, jnp.zeros(inner, payoff.dtype), periods)

    def follow(state: tuple[Array, Array], t: Array) -> tuple[tuple[Array, Array], Array]:
        counts, playing = state
        arm = actions[size - 2 - t][tuple(counts)].astype(jnp.int32)
        # Who stops leaves the layers: the counts no longer add up to t.
        playing = playing & (t < total) & (arm >= 0)
        moved = counts + jnp.where(playing, jnp.arange(num_arms - 1) == arm, False)
        return (moved.astype(counts.dtype), playing), jnp.where(playing, arm, -1)

    origin = jnp.zeros(num_arms - 1, jnp.int32), jnp.asarray(True)
    _, sequence = jax.lax.scan(follow, origin, jnp.arange(size - 1))
    return first[(0,) * (num_arms - 1)], sequence


def _shift(table: Array, axis: int) -> Array:
    """table[..., i + 1, ...] at i; the last slice, never reached inside the lattice, repeats."""
    size = table.shape[axis]
    return jnp.take(table, jnp.minimum(jnp.arange(size) + 1, size - 1), axis=axis)
