"""Policies that decide on the host, played one decision at a time."""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from irsppl._checks import numbered_keys
from irsppl._fields import changed
from irsppl._progress import duration
from irsppl.bandit import Bandit, advance, advance_unseen, deliver
from irsppl.beliefs import for_simulation
from irsppl.outcomes import Outcome
from irsppl.penalties.arrivals import pending_of, ready
from irsppl.policies._base import Policy
from irsppl.policies.function import ArmCheck
from irsppl.policies.generators import seed_of, seeded

# Decisions by which the rest is judged; those before compile the step.
_WARM, _TIMED = 2, 20


# ------------------------------------------------------------------ one step, quickly


class _Shape(NamedTuple):
    """What a bandit is but for its arrays; hashable."""

    arrays: Any
    static: Any
    others: tuple[Any, ...]


@functools.partial(jax.jit, static_argnums=(0, 1))
def _step(kind: Callable[..., Bandit], shape: _Shape, leaves: list[Array], *args: Array) -> Any:
    return jax.tree.leaves(eqx.filter(kind(_bandit(shape, leaves), *args), eqx.is_array))


@functools.partial(jax.jit, static_argnums=0)
def _possible(shape: _Shape, leaves: list[Array]) -> Bool[Array, " K"]:
    """Which arms may be pulled; none where nothing remains."""
    bandit = _bandit(shape, leaves)
    return bandit.access.allowed(bandit) & (bandit.remaining > 0)


def _bandit(shape: _Shape, leaves: list[Array]) -> Bandit:
    static = jax.tree.unflatten(shape.static, shape.others)
    return eqx.combine(jax.tree.unflatten(shape.arrays, leaves), static)


class _State:
    """A bandit in play; `eqx.filter_jit` would cost more than most decisions."""

    def __init__(self, bandit: Bandit):
        arrays, static = eqx.partition(bandit, eqx.is_array)
        leaves, structure = jax.tree.flatten(arrays)
        others, rest = jax.tree.flatten(static)
        self.shape, self.leaves = _Shape(structure, rest, tuple(others)), leaves
        # Where nothing but arrays varies, the pytree need not be put together from two.
        self.plain = None if others else structure

    def bandit(self, leaves: list[Array]) -> Bandit:
        if self.plain is not None:
            return jax.tree.unflatten(self.plain, leaves)
        return _bandit(self.shape, leaves)

    def step(self, kind: Callable[..., Bandit], leaves: list[Array], *args: Any) -> list[Array]:
        return _step(kind, self.shape, leaves, *args)


# ------------------------------------------------------------------ paths


class Clock:
    """Times the first decisions, and says what all of them will take."""

    def __init__(self, label: str, reason: str, replications: int, periods: int):
        self.label, self.reason = label, reason
        self.total = replications * periods
        self.made, self.started, self.warned = 0, 0.0, False

    def tick(self) -> None:
        self.made += 1
        if self.made == _WARM:
            self.started = time.perf_counter()
        elif self.made == _WARM + _TIMED:
            self.tell()

    def tell(self) -> None:
        """Once, in as good time as there is."""
        if self.warned:
            return
        self.warned = True
        timed = self.made - _WARM
        cost = ""
        if timed > 0:
            each = (time.perf_counter() - self.started) / timed
            cost = f" at {1000 * each:.2g} ms each: about {duration(each * self.total)}"
        warnings.warn(
            f"policy {self.label!r} is played in plain Python, one decision at a time "
            f"({self.reason}): {self.total:,} decisions{cost}. A function written with jax.numpy "
            "alone runs compiled; fewer replications take less",
            UserWarning,
            stacklevel=2,
        )


def play_plainly(
    policy: Policy, bandit: Bandit, stream: Array, label: str, total: int
) -> Callable[[Outcome, int, int], np.ndarray]:
    """A function (futures, number of the first, how many count) -> arms [S, T], -1 for no pull."""
    state = _State(changed(bandit, belief=for_simulation(bandit.belief)))
    read = ArmCheck(label, bandit)
    clock = Clock(label, policy.reason, total, int(bandit.remaining))

    def play(futures: Outcome, first: int, count: int) -> np.ndarray:
        host = _Host(bandit, futures)
        numbers = np.arange(first, first + len(futures.rewards), dtype=np.uint32)
        keys = list(numbered_keys(stream, numbers))
        arms = np.full((count, bandit.size), -1, np.int32)
        for i in range(count):
            with seeded(keys[i]):
                play_one(host, i, keys[i], arms[i])
        clock.tell()
        return arms

    def play_one(host: _Host, i: int, key: Array, arms: np.ndarray) -> None:
        """One replication; writes the arms."""
        player = policy.player(seed_of(key), bandit)
        access, late_rewards = bandit.access, bandit.arrivals.late
        follow = player.reads_bandit or access.binds
        remaining, now = int(bandit.remaining), int(bandit.period)
        periods = remaining if host.periods is None else min(remaining, int(host.periods[i]))
        keys: list[Any] = [key] * bandit.size
        if follow:
            keys = list(numbered_keys(key, np.arange(bandit.size, dtype=np.uint32)))
        column = host.waiting.copy()
        leaves, owed = state.leaves, _pending(bandit, host, i)
        seen_bandit = bandit
        for t in range(periods):
            for due in [entry for entry in owed if entry[0] <= now + t]:
                _, pull, arm, reward = due
                owed.remove(due)
                player.learn(arm, float(reward))
                if follow:
                    leaves = state.step(deliver, leaves, np.int32(pull), reward)
            if follow:
                seen_bandit = state.bandit(leaves)
            if access.binds:
                possible = np.asarray(_possible(state.shape, leaves))
                if not possible.any():
                    return
            arm = read(player.decide(keys[t], seen_bandit))
            clock.tick()
            if arm < 0:
                return
            if access.binds and not possible[arm]:
                if access.may_stop:
                    return
                raise read.error(arm)
            arms[t] = arm
            reward = host.rewards[i, arm, column[arm]]
            if not late_rewards:
                player.learn(arm, float(reward))
                if follow:
                    leaves = state.step(advance, leaves, np.int32(arm), reward)
            else:
                assert host.delays is not None
                late = now + t + int(host.delays[i, arm, column[arm]]) + 1
                owed.append((late, now + t, arm, reward))
                if follow:
                    leaves = state.step(advance_unseen, leaves, np.int32(arm))
            column[arm] += 1

    return play


class _Host:
    """Futures on the host."""

    def __init__(self, bandit: Bandit, futures: Outcome):
        self.rewards = np.asarray(futures.rewards)
        self.delays = None if futures.delays is None else np.asarray(futures.delays)
        self.periods = None if futures.periods is None else np.asarray(futures.periods)
        self.waiting = np.asarray(pending_of(bandit))
        self.ready = None
        if bandit.pending:  # decisions from now at which a pending reward is known
            size = self.rewards.shape[2]
            look = jax.vmap(lambda delays: ready(bandit, delays, size))
            self.ready = np.asarray(look(jnp.asarray(self.delays)))


def _pending(bandit: Bandit, host: _Host, i: int) -> list[tuple[int, int, int, Any]]:
    """(period from which it is known, number of the pull, arm, reward) of pulls made before."""
    owed: list[tuple[int, int, int, Any]] = []
    if host.ready is None or bandit.pulled is None:
        return owed
    column = np.zeros(bandit.num_arms, int)
    pulled = np.asarray(bandit.pulled)
    for pull in bandit.pending:
        arm = int(pulled[pull])
        when = int(bandit.period) + int(host.ready[i, arm, column[arm]])
        owed.append((when, pull, arm, host.rewards[i, arm, column[arm]]))
        column[arm] += 1
    return owed
