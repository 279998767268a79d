"""`Bandit`: the instance (belief, horizon) and its state as it is played."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from irsppl._checks import as_count, as_key, is_concrete
from irsppl.beliefs import Belief
from irsppl.outcomes import Outcome


class Bandit(eqx.Module):
    """A finite-horizon Bayesian bandit, at some moment of its play.

    Immutable: `pull` returns the bandit one period on. Every array keeps the shape it had at the
    first period, and how far play has come is data, so that a loop of decisions compiles once.
    """

    belief: Belief
    remaining: Int[Array, ""]  # periods left, this one included
    period: Int[Array, ""]
    counts: Int[Array, " K"]
    pulled: Int[Array, " T"] | None  # arm of pull number i, -1 while i is in the future
    seen: Bool[Array, " T"] | None  # whether the reward of pull number i is in the belief
    horizon: int = eqx.field(static=True)  # periods at the start: the shapes' size
    labels: tuple[str, ...] | None = eqx.field(static=True)

    def __init__(self, belief: Belief, horizon: int, *, labels: Sequence[str] | None = None):
        if not isinstance(belief, Belief):
            raise ValueError(
                f"belief must be an irsppl belief such as BetaBernoulli(...), got {belief!r}"
            )
        self.belief = belief.sized(as_count("horizon", horizon))
        self.horizon = as_count("horizon", horizon)
        self.labels = _check_labels(labels, belief.num_arms)
        self.remaining = jnp.asarray(self.horizon, jnp.int32)
        self.period = jnp.asarray(0, jnp.int32)
        self.counts = jnp.zeros(belief.num_arms, jnp.int32)
        self.pulled = jnp.full(self.horizon, -1, jnp.int32)
        self.seen = jnp.zeros(self.horizon, bool)

    @property
    def num_arms(self) -> int:
        return self.belief.num_arms

    @property
    def arm_labels(self) -> tuple[str, ...]:
        return self.labels or tuple(str(a) for a in range(self.num_arms))

    # ---- play
    def pull(self, arm: Any, reward: Any = None) -> Bandit:
        """One period on. Without `reward` the pull is pending until `arrive` brings its reward."""
        self.check_open()
        self.belief.check_arm(arm)
        if np.shape(arm):
            raise ValueError(f"arm must be one arm, got an array of shape {np.shape(arm)}")
        if reward is None:
            return _pull_unseen(self, jnp.asarray(arm))
        if np.shape(reward):
            raise ValueError(f"reward must be one number, got shape {np.shape(reward)}")
        self.belief.check_reward(arm, reward)
        return _pull(self._in_play(), jnp.asarray(arm), jnp.asarray(reward))

    def arrive(self, pull: Any, reward: Any) -> Bandit:
        """The reward of pull number `pull` (from 0, over all arms) has arrived."""
        if self.pulled is None:
            raise ValueError("this bandit keeps no record of its pulls, so none can be pending")
        if is_concrete(self, pull):
            if int(pull) not in self.pending:
                told = ", ".join(map(str, self.pending)) or "none"
                raise ValueError(f"pull must be a pending pull (pending: {told}), got {pull!r}")
            self.belief.check_reward(self.pulled[int(pull)], reward)
        return _arrive(self._in_play(), jnp.asarray(pull), jnp.asarray(reward))

    def _in_play(self) -> Bandit:
        return eqx.tree_at(lambda b: b.belief, self, self.belief.in_play())

    @property
    def pending(self) -> tuple[int, ...]:
        """Numbers of the pulls whose reward is not known yet (concrete bandits only)."""
        if self.pulled is None or self.seen is None:
            return ()
        waiting = (np.asarray(self.pulled) >= 0) & ~np.asarray(self.seen)
        return tuple(int(i) for i in np.flatnonzero(waiting))

    @property
    def pending_counts(self) -> Int[Array, " K"] | None:
        """Pending pulls of each arm; None where no record is kept (then there are none)."""
        if self.pulled is None or self.seen is None:
            return None
        waiting = (self.pulled >= 0) & ~self.seen
        arms = jnp.arange(self.num_arms)[:, None]
        return jnp.sum((self.pulled[None, :] == arms) & waiting[None, :], axis=1)

    def check_open(self) -> None:
        if is_concrete(self.remaining) and int(self.remaining) <= 0:
            raise ValueError(f"nothing remains to be played: all {self.horizon} periods are over")

    # ---- futures
    def sample_outcome(self, key: Any) -> Outcome:
        """A future of the current belief, with `horizon` rewards per arm (the shapes' size)."""
        return self.belief._sample(as_key(key) if isinstance(key, int) else key, self.horizon)

    def sample_truth(self, key: Array) -> Outcome:
        """A future for bounds and simulations: from the user's prior itself (see the belief)."""
        return self.belief._sample_truth(key, self.horizon)

    def _shrunk(self, horizon: int) -> Bandit:
        """The same state in arrays sized for at most `horizon` periods left, without the record."""
        bandit = eqx.tree_at(
            lambda b: (b.pulled, b.seen), self, (None, None), is_leaf=lambda x: x is None
        )
        object.__setattr__(bandit, "horizon", horizon)  # a fresh copy: nobody else holds it
        return bandit

    def __repr__(self) -> str:
        name = type(self.belief).__name__
        text = f"Bandit({name} with {self.num_arms} arms, horizon={self.horizon}"
        concrete = isinstance(self.remaining, (np.ndarray, jnp.ndarray))
        concrete = concrete and is_concrete(self.remaining) and np.ndim(self.remaining) == 0
        if concrete and int(self.period):
            text += f", period={int(self.period)}, remaining={int(self.remaining)}"
            if self.pending:
                text += f", pending={list(self.pending)}"
        return text + ")"


def _check_labels(labels: Sequence[str] | None, num_arms: int) -> tuple[str, ...] | None:
    if labels is None:
        return None
    labels = tuple(str(label) for label in labels)
    if len(labels) != num_arms or len(set(labels)) != num_arms:
        raise ValueError(f"labels must be {num_arms} different names, one per arm, got {labels}")
    return labels


def advance(bandit: Bandit, arm: Array, reward: Array) -> Bandit:
    """`pull` without checks, for traced code."""
    return _record(bandit, arm, True, bandit.belief._update(arm, reward))


def _record(bandit: Bandit, arm: Array, seen: bool, belief: Belief) -> Bandit:
    pulled, known = bandit.pulled, bandit.seen
    if pulled is not None and known is not None:
        pulled = pulled.at[bandit.period].set(arm.astype(jnp.int32))
        known = known.at[bandit.period].set(seen)
    return eqx.tree_at(
        lambda b: (b.belief, b.remaining, b.period, b.counts, b.pulled, b.seen),
        bandit,
        (
            belief,
            bandit.remaining - 1,
            bandit.period + 1,
            bandit.counts.at[arm].add(1),
            pulled,
            known,
        ),
        is_leaf=lambda x: x is None,
    )


_pull = eqx.filter_jit(advance)


@eqx.filter_jit
def _pull_unseen(bandit: Bandit, arm: Array) -> Bandit:
    return _record(bandit, arm, False, bandit.belief)


@eqx.filter_jit
def _arrive(bandit: Bandit, pull: Array, reward: Array) -> Bandit:
    assert bandit.pulled is not None and bandit.seen is not None
    return eqx.tree_at(
        lambda b: (b.belief, b.seen),
        bandit,
        (bandit.belief._update(bandit.pulled[pull], reward), bandit.seen.at[pull].set(True)),
    )
