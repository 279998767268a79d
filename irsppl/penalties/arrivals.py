"""What a future can have revealed by a given moment, under delays and sampled horizons.

A posterior mean given some of a future's rewards is asked of a belief by *how many* of each arm's
rewards are known. So the rewards are put in an order in which what is known is always a beginning:
the belief then never hears of delays.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from irsppl.bandit import Bandit
from irsppl.outcomes import Outcome


def periods_of(bandit: Bandit, outcome: Outcome) -> Int[Array, ""]:
    """Periods that this future plays."""
    return bandit.remaining if outcome.periods is None else outcome.periods


def pending_of(bandit: Bandit) -> Int[Array, " K"]:
    """Pending pulls of each arm: a future's rewards start with theirs."""
    pending = bandit.pending_counts
    return jnp.zeros(bandit.num_arms, jnp.int32) if pending is None else pending


def ready(bandit: Bandit, delays: Int[Array, "K N"] | None, size: int) -> Int[Array, "K N"]:
    """Decisions from now at which each reward can be known, if its arm is pulled all the time.

    The n-th pull to come (from 0) cannot be made before n other decisions, so no policy knows its
    reward earlier. Pending rewards without a law of delay are taken to be known at once.
    """
    n = jnp.arange(size)[None, :] - pending_of(bandit)[:, None]
    if delays is None:
        return jnp.where(n >= 0, n + 1, 0)
    return jnp.where(n >= 0, n + delays + 1, jnp.maximum(delays + 1 - bandit.waited()[:, :size], 1))


def by_arrival(bandit: Bandit, outcome: Outcome) -> tuple[Float[Array, "K N"], Int[Array, "K N+1"]]:
    """(rewards in order of arrival, `[a, s]`: how many are known at the decision s from now)."""
    size = outcome.rewards.shape[1]
    if not bandit.arrivals.late:
        known = pending_of(bandit)[:, None] + jnp.arange(size + 1)[None, :]
        return outcome.rewards, jnp.minimum(known, size)
    when = ready(bandit, outcome.delays, size)
    order = jnp.argsort(when, axis=1, stable=True)
    rewards = jnp.take_along_axis(outcome.rewards, order, axis=1)
    when = jnp.take_along_axis(when, order, axis=1)
    moments = jnp.arange(size + 1)
    return rewards, jax.vmap(lambda row: jnp.searchsorted(row, moments, side="right"))(when)


def in_time(
    bandit: Bandit, outcome: Outcome, periods: Int[Array, ""]
) -> tuple[Float[Array, "K N"], Int[Array, "K N+1"]]:
    """(rewards, those known by the last decision first; `[a, c]`: how many of a's first c are)."""
    when = ready(bandit, outcome.delays, outcome.rewards.shape[1])
    known = counts_in_time(when, periods)
    if not bandit.arrivals.late:
        return outcome.rewards, known
    order = jnp.argsort(when > periods - 1, axis=1, stable=True)
    return jnp.take_along_axis(outcome.rewards, order, axis=1), known


def counts_in_time(when: Int[Array, "K N"], periods: Int[Array, ""]) -> Int[Array, "K N+1"]:
    """`[a, c]`: how many of the first c rewards can be known by the last decision."""
    return jnp.pad(jnp.cumsum(when <= periods - 1, axis=1), ((0, 0), (1, 0)))


def at_each(table: Array, index: Array) -> Array:
    """`table[a, index[a, ...]]`."""
    size = table.shape[1]
    return jax.vmap(lambda row, i: row[jnp.clip(i, 0, size - 1)])(table, index)
