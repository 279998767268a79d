"""Whole paths of a policy along given futures: by compiled kernels, in JAX, or in plain Python."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from irsppl._checks import numbered_keys
from irsppl._fields import changed
from irsppl.bandit import Bandit, advance, advance_unseen, deliver
from irsppl.beliefs import Cloud, for_simulation, too_few
from irsppl.outcomes import Outcome
from irsppl.penalties.arrivals import pending_of, ready
from irsppl.penalties.base import after_pending_batch
from irsppl.policies._base import Policy
from irsppl.policies.function import ArmCheck
from irsppl.policies.generators import key_words
from irsppl.policies.plain import play_plainly

# In JAX the horizon is cut into segments, with shapes fixed in each and smaller in the next: one
# program for all periods would plan every decision on arrays of the whole horizon.
_SEGMENTS = 4


class Played(NamedTuple):
    """Arms [S, T], -1 where none is pulled; of clouds of particles also how good they were."""

    arms: np.ndarray
    ess: np.ndarray | None = None  # [S] the least effective sample size that a decision had
    poor: np.ndarray | None = None  # [S] whether some belief was inaccurate
    moved: bool = True  # whether clouds could be moved


# (futures, number of the first replication, how many of the futures count) -> what is played
Play = Callable[[Outcome, int, int], Played]


def segments(horizon: int, grows: bool) -> list[tuple[int, int]]:
    """(array size, periods) of each segment of a path."""
    if not grows or horizon < 4 * _SEGMENTS:
        return [(horizon, horizon)]
    cuts = [round(horizon * (1 - i / _SEGMENTS)) for i in range(_SEGMENTS + 1)]
    return [(size, size - following) for size, following in itertools.pairwise(cuts)]


@eqx.filter_jit
def play_traced(
    policy: Policy, bandit: Bandit, rewards: Float[Array, "S K T"], keys: Array
) -> Int[Array, "S T"]:
    """The arms that the policy pulls along given true rewards."""

    def one(rewards: Array, key: Array) -> Array:
        state = changed(bandit, belief=for_simulation(bandit.belief))
        played: list[Array] = []
        for size, length in segments(bandit.size, policy.grows):
            state = state.trimmed(size)
            dynamic, static = eqx.partition(state, eqx.is_array)

            def step(dynamic: Any, t: Array, static: Any = static) -> tuple[Any, Array]:
                state = eqx.combine(dynamic, static)
                arm = policy(jax.random.fold_in(key, t), state)
                reward = rewards[arm, state.counts[arm] - bandit.counts[arm]]
                return eqx.filter(advance(state, arm, reward), eqx.is_array), arm

            first = sum(part.shape[0] for part in played)
            dynamic, arms = jax.lax.scan(step, dynamic, jnp.arange(first, first + length))
            state = eqx.combine(dynamic, static)
            played.append(arms)
        return jnp.concatenate(played).astype(jnp.int32)

    return jax.vmap(one)(rewards, keys)


@eqx.filter_jit
def play_constrained(
    policy: Policy, bandit: Bandit, outcomes: Outcome, keys: Array
) -> tuple[Int[Array, "S T"], Bool[Array, "S T"]]:
    """The same where rewards come late, arms may be out of reach or play may end: -1 for no pull.

    Beside the arms: where the policy named one that there is not, or that may not be pulled; but
    where play may stop, the latter ends it.
    """
    waiting, may_stop, late = pending_of(bandit), bandit.access.may_stop, bandit.arrivals.late
    least = -1 if may_stop else 0  # -1: to stop

    def one(outcome: Outcome, key: Array) -> tuple[Array, Array]:
        state = changed(bandit, belief=for_simulation(bandit.belief))
        due, owed = _pending_rewards(bandit, outcome)
        dynamic, static = eqx.partition(state, eqx.is_array)

        def step(carry: Any, t: Array) -> tuple[Any, tuple[Array, Array]]:
            dynamic, due, owed, playing = carry
            state = eqx.combine(dynamic, static)
            if late:
                state = _deliver_due(state, due, owed)
            arm = policy(jax.random.fold_in(key, t), state).astype(jnp.int32)
            asked = playing & (state.remaining > 0)
            # JAX would quietly take the nearest arm, or count from the end.
            unknown = asked & ((arm < least) | (arm >= bandit.num_arms))
            allowed = state.access.allowed(state)[arm]
            unknown = unknown if may_stop else unknown | (asked & ~allowed)
            playing = asked & (arm >= 0) & ~unknown & allowed
            column = waiting[arm] + state.counts[arm] - bandit.counts[arm]
            reward = outcome.rewards[arm, column]
            if not late:
                after = advance(state, arm, reward)
            else:
                assert outcome.delays is not None
                known = state.period + outcome.delays[arm, column] + 1
                due, owed = due.at[state.period].set(known), owed.at[state.period].set(reward)
                after = advance_unseen(state, arm)
            moved, stayed = (eqx.filter(x, eqx.is_array) for x in (after, state))
            dynamic = jax.tree.map(lambda a, b: jnp.where(playing, a, b), moved, stayed)
            return (dynamic, due, owed, playing), (jnp.where(playing | unknown, arm, -1), unknown)

        start = (dynamic, due, owed, jnp.asarray(True))
        _, (arms, unknown) = jax.lax.scan(step, start, jnp.arange(bandit.size))
        if outcome.periods is not None:
            played = jnp.arange(bandit.size) < outcome.periods
            arms, unknown = jnp.where(played, arms, -1), unknown & played
        return arms, unknown

    return jax.vmap(one)(outcomes, keys)


def _pending_rewards(bandit: Bandit, outcome: Outcome) -> tuple[Array, Array]:
    """By number of the pull: the period from which its reward is known, and the reward."""
    if not bandit.arrivals.late or bandit.pulled is None or bandit.seen is None:
        return jnp.zeros(0, jnp.int32), jnp.zeros(0, outcome.rewards.dtype)
    size = bandit.pulled.shape[0]
    arms = jnp.maximum(bandit.pulled, 0)
    pending = (bandit.pulled >= 0) & ~bandit.seen
    same = (bandit.pulled[None, :] == bandit.pulled[:, None]) & pending[None, :]
    earlier = jnp.arange(size)[None, :] < jnp.arange(size)[:, None]
    column = jnp.sum(same & earlier, axis=1)
    column = jnp.minimum(column, outcome.rewards.shape[1] - 1)
    when = bandit.period + ready(bandit, outcome.delays, outcome.rewards.shape[1])[arms, column]
    return when, outcome.rewards[arms, column]


def _deliver_due(state: Bandit, due: Array, owed: Array) -> Bandit:
    """Every reward that is due by now reaches the belief, in the order of the pulls."""
    dynamic, static = eqx.partition(state, eqx.is_array)

    def waiting(state: Bandit) -> Array:
        assert state.pulled is not None and state.seen is not None
        return (state.pulled >= 0) & ~state.seen & (due <= state.period)

    def more(dynamic: Any) -> Array:
        return jnp.any(waiting(eqx.combine(dynamic, static)))

    def one(dynamic: Any) -> Any:
        state = eqx.combine(dynamic, static)
        pull = jnp.argmax(waiting(state))
        return eqx.filter(deliver(state, pull, owed[pull]), eqx.is_array)

    return eqx.combine(jax.lax.while_loop(more, one, dynamic), static)


def label_hash(label: str) -> int:
    """A policy's own number, from its label alone (stable between runs and machines)."""
    return zlib.crc32(label.encode())


def player(
    policy: Policy,
    bandit: Bandit,
    key: Array,
    label: str,
    total: int,
    kernel: Any,
    threads: int = 1,
) -> Play:
    """A function that plays the policy; `total` replications are to come in all.

    kernel: the policy compiled (`irsppl.engine.Kernel`), if it can be, to run on so many threads.
    """
    if kernel is not None:
        return _by_kernel(kernel, bandit, threads, key, label)
    stream = jax.random.fold_in(jax.random.fold_in(key, 1), label_hash(label))
    if not policy.traceable:
        plainly = play_plainly(policy, bandit, stream, label, total)
        return lambda futures, *at: watched(bandit, futures, plainly(futures, *at))

    def play(futures: Outcome, start: int, count: int) -> Played:
        keys = numbered_keys(
            stream, np.arange(start, start + len(futures.rewards), dtype=np.uint32)
        )
        if bandit.constraints:
            both = play_constrained(policy, bandit, futures.bare(), keys)
            arms, unknown = (np.asarray(array)[:count] for array in both)
        else:
            traced = play_traced(policy, bandit, jnp.asarray(futures.rewards), keys)
            arms = np.asarray(traced)[:count]
            unknown = (arms < 0) | (arms >= bandit.num_arms)
        if unknown.any():
            raise ArmCheck(label, bandit).error(int(arms[unknown][0]))
        return watched(bandit, futures, arms)

    return play


def watched(bandit: Bandit, futures: Outcome, arms: np.ndarray) -> Played:
    """With the effective sample sizes of clouds that were only reweighted."""
    belief: Any = bandit.belief
    if not isinstance(belief, Cloud):
        return Played(arms)
    rewards: Any = np.asarray(after_pending_batch(bandit, futures.rewards))
    full: Any = np.full((len(rewards), arms.shape[1]), -1, np.int32)  # one shape for every chunk
    full[: len(arms)] = arms
    ess = np.asarray(_least_ess(belief, rewards, full))[: len(arms)]
    return Played(arms, ess, too_few(ess, belief.num_points), moved=False)


@eqx.filter_jit
def _least_ess(
    belief: Any, rewards: Float[Array, "S K T"], arms: Int[Array, "S T"]
) -> Float[Array, " S"]:
    """The least effective sample size as the rewards of these pulls come in."""
    dynamic, static = eqx.partition(for_simulation(belief), eqx.is_array)

    def one(rewards: Array, arms: Array) -> Array:
        def step(carry: Any, arm: Array) -> tuple[Any, Array]:
            dynamic, counts = carry
            now = eqx.combine(dynamic, static)
            after = now.given(jnp.maximum(arm, 0), rewards[arm, counts[arm]])
            moved, stayed = (eqx.filter(x, eqx.is_array) for x in (after, now))
            dynamic = jax.tree.map(lambda a, b: jnp.where(arm >= 0, a, b), moved, stayed)
            counts = counts.at[arm].add(arm >= 0)
            return (dynamic, counts), jnp.min(eqx.combine(dynamic, static).effective_sample_size())

        start = (dynamic, jnp.zeros(rewards.shape[0], jnp.int32))
        return jnp.min(jax.lax.scan(step, start, arms)[1])

    return jax.vmap(one)(rewards, arms)


def seeds_of(key: Array, label: str, start: int, count: int) -> np.ndarray:
    """Seeds of compiled kernels, one for each replication or decision, by label and number."""
    from irsppl.inner.cpu.rng import streams

    return streams(key_words(key), label_hash(label), start, count)


def _by_kernel(kernel: Any, bandit: Bandit, threads: int, key: Array, label: str) -> Play:
    def play(futures: Outcome, start: int, count: int) -> Played:
        rewards, delays, periods = (
            None if field is None else np.asarray(field)[:count]
            for field in (futures.rewards, futures.delays, futures.periods)
        )
        made = kernel.played(rewards, seeds_of(key, label, start, count), delays, periods, threads)
        return watched(bandit, futures, made.arms) if made.ess is None else made

    return play
