"""One arm against a known option: the relative benefit phi of IRS.Index and IRS.Index*."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

# Halvings of the bracket; float32 has no more bits to offer.
BISECTIONS = 32


def benefit(
    means: Float[Array, "K N+1"],
    gamma: Float[Array, "K N+1"],
    lam: Float[Array, " K"],
    horizon: Int[Array, "..."],
    star: bool,
) -> Float[Array, " K"]:
    """phi_a(lam_a) along one sampled path per arm (IRS.Index; `star`: IRS.Index*).

    means[a, n]: posterior mean after n rewards; gamma[a, n]: E[max(mu_a, lam_a)] then. Only the
    first `horizon` pulls count (traced, <= N; one number, or one for each arm).
    """
    size = means.shape[1] - 1
    n = jnp.arange(1, size + 1)[None, :]
    horizon = jnp.broadcast_to(horizon, lam.shape)[:, None]
    lam, root = lam[:, None], gamma[:, :1]
    if star:
        terms = jnp.cumsum(means[:, :-1] - lam - (gamma[:, 1:] - root), axis=1)
    else:
        lowest = jax.lax.cummin(gamma, axis=1)[:, 1:]
        earned = jnp.cumsum(means[:, :-1] - gamma[:, :-1], axis=1)
        left = (horizon - n).astype(means.dtype)
        terms = horizon * (root - lam) + left * (lam - lowest) + earned
    return jnp.max(jnp.where(n <= horizon, terms, -jnp.inf), axis=1)


def largest_worth(
    phi: Callable[[Array], Array],
    low: Float[Array, " K"],
    high: Float[Array, " K"],
    only_best: bool = False,
) -> Float[Array, " K"]:
    """sup{lam: phi(lam) >= 0} per arm by bisection; widens the bracket until it holds a change.

    phi need not be monotone near its root: searching from a low end where phi >= 0 finds a change
    of sign above it, as the paper's bisection does. One loop asks phi once per turn (at the low
    end until it holds, at the high end until it fails, then in the middle), because every copy of
    phi in the program would be compiled. only_best: stop as soon as it is clear which arm has the
    largest, so that the result tells the best arm, and of the others no more than that.
    """

    State = tuple[Array, Array, Array, Array, Array, Array]

    def turn(state: State) -> State:
        low, high, step, low_ok, high_ok, left = state
        bracketed = low_ok & high_ok
        at = jnp.where(~low_ok, low, jnp.where(~high_ok, high, (low + high) / 2))
        worth = phi(at) >= 0
        new_low = jnp.where(low_ok, jnp.where(worth, at, low), jnp.where(worth, low, low - step))
        # A low end that fails is an upper end.
        new_high = jnp.where(
            low_ok, jnp.where(worth, jnp.where(high_ok, high, high + step), at), high
        )
        new_high = jnp.where(~low_ok & ~worth, low, new_high)
        high_ok = high_ok | ~worth
        low_ok = low_ok | worth
        step = jnp.where(bracketed, step, 2 * step)
        left = left - bracketed.astype(left.dtype)
        return new_low, new_high, step, low_ok, high_ok, left

    def unfinished(state: State) -> Array:
        low, high, step, low_ok, high_ok, left = state
        more = jnp.any((left > 0) & jnp.isfinite(step))
        if not only_best:
            return more
        best = jnp.argmax(jnp.where(low_ok, low, -jnp.inf))
        rivals = jnp.arange(low.shape[0]) != best
        clear = high_ok & (high < low[best])  # an upper end bounds a root from above once it fails
        return more & ~(low_ok[best] & jnp.all(clear | ~rivals))

    # A degenerate bracket (a belief that has collapsed to a point) still needs room to move.
    high = jnp.maximum(high, low + 1e-6 * (1 + jnp.abs(low)))
    no = jnp.zeros(low.shape, bool)
    left = jnp.full(low.shape, BISECTIONS, jnp.int32)
    low, high, *_ = jax.lax.while_loop(unfinished, turn, (low, high, high - low, no, no, left))
    return (low + high) / 2
