"""`Bandit`: the instance (belief, horizon, constraints) and its state as it is played."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from irsppl._checks import MOST_PERIODS, as_count, as_key, check_number, is_concrete, side_key
from irsppl.beliefs import Belief, sized
from irsppl.beliefs._base import examined
from irsppl.budgets import Purse, read_budget
from irsppl.delays import Delay, read_delay
from irsppl.horizons import SurvivorTable, read_horizon
from irsppl.outcomes import Outcome


class Room(eqx.Module):
    """For how many periods arrays are sized: at least those that remain. No horizon of anyone's."""

    size: int = eqx.field(static=True)


class Bandit(eqx.Module):
    """A finite-horizon Bayesian bandit, at some moment of its play.

    horizon: periods; or a NumPyro distribution over 0, 1, ... (mass at 0 earns nothing), or an
    array of P(T >= 1), P(T >= 2), ..., where nobody knows when play ends; with a budget it may be
    left out. delay: decisions that a reward misses before it is known (a number, one per arm, or a
    NumPyro distribution; infinity: never seen). It postpones information, never reward. costs,
    budget: price of a pull of each arm, and what can be spent in all; play may stop before.

    Immutable: `pull` returns the bandit one period on. Every array keeps the shape it had at the
    first period, and how far play has come is data, so that a loop of decisions compiles once.

    What a policy may read means the same in `choose`, `simulate`, `certify` and everywhere else:
    `belief`, `horizon` (that of the first period, however far play has come), `period`,
    `remaining`, `counts`, `budget`, `pending`, `pending_counts`.
    """

    belief: Belief
    remaining: Int[Array, ""]  # periods left, this one included
    period: Int[Array, ""]
    counts: Int[Array, " K"]
    pulled: Int[Array, " T"] | None  # arm of pull number i, -1 while i is in the future
    seen: Bool[Array, " T"] | None  # whether the reward of pull number i is in the belief
    delay: Delay | None
    purse: Purse | None
    survivor: Float[Array, " T"] | None  # P(T >= 1), P(T >= 2), ... where the horizon has a law
    room: Room  # the size of arrays, which callers may cut; nothing for a policy to plan with
    horizon: int = eqx.field(static=True)  # periods at the start, as they were stated
    labels: tuple[str, ...] | None = eqx.field(static=True)
    capped: bool = eqx.field(static=True)  # whether the horizon can end play before the money does
    law: SurvivorTable | None = eqx.field(static=True)  # `survivor` in full precision
    tail: float = eqx.field(static=True)  # expected periods beyond those that are planned for

    def __init__(
        self,
        belief: Belief,
        horizon: Any = None,
        *,
        delay: Any = None,
        costs: Any = None,
        budget: Any = None,
        labels: Sequence[str] | None = None,
    ):
        if not isinstance(belief, Belief):
            raise ValueError(
                f"belief must be an irsppl belief such as BetaBernoulli(...), got {belief!r}"
            )
        self.purse = read_budget(costs, budget, belief.num_arms)
        survivor, self.tail, self.capped = None, 0.0, True
        if horizon is not None or self.purse is None:
            periods, survivor, self.tail = read_horizon(horizon)
        if self.purse is not None:
            most = int(self.purse.pulls_left())
            if survivor is not None:
                raise ValueError(
                    "horizon must be a whole number where there is a budget, not a law: money and "
                    "an unknown end together are not planned for"
                )
            self.capped = horizon is not None and periods < most
            periods = min(periods, most) if horizon is not None else most
            if periods > MOST_PERIODS:
                raise ValueError(
                    f"budget pays for {periods:,} pulls of the cheapest arm, more than the "
                    f"{MOST_PERIODS:,} that are planned for: give a horizon as well, or a smaller "
                    "budget"
                )
        dtype = belief.predictive_mean().dtype
        self.survivor = None if survivor is None else jnp.asarray(survivor, dtype)
        self.law = None if survivor is None else SurvivorTable(survivor)
        self.belief = sized(belief, periods)
        self.horizon = periods
        self.room = Room(periods)
        self.delay = read_delay(delay, belief.num_arms, periods)
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

    @property
    def size(self) -> int:
        """Length of the arrays over periods and over rewards of an arm."""
        return self.room.size

    @property
    def budget(self) -> Any:
        """Money left: a float (an array where JAX traces); None where pulls cost nothing."""
        if self.purse is None:
            return None
        money = self.purse.money
        concrete = is_concrete(money) and np.ndim(money) == 0
        return int(money) * self.purse.unit if concrete else money * self.purse.unit

    @property
    def constraints(self) -> frozenset[str]:
        """Which of "delay", "budget", "horizon law" this bandit has."""
        found = {"delay": self.delay, "budget": self.purse, "horizon law": self.survivor}
        return frozenset(name for name, value in found.items() if value is not None)

    # ---- play
    def pull(self, arm: Any, reward: Any = None) -> Bandit:
        """One period on. Without `reward` the pull is pending until `arrive` brings its reward."""
        self.check_open()
        self.belief.check_arm(arm)
        if np.shape(arm):
            raise ValueError(f"arm must be one arm, got an array of shape {np.shape(arm)}")
        self._check_paid(arm)
        if reward is None:
            return _pull_unseen(self, jnp.asarray(arm))
        check_number("reward", reward)
        rewards = self.belief.as_rewards(arm, reward)
        return self._settled(_pull(self, jnp.asarray(arm), rewards), arm, reward)

    def arrive(self, pull: Any, reward: Any) -> Bandit:
        """The reward of pull number `pull` (from 0, over all arms) has arrived."""
        if self.pulled is None:
            raise ValueError("this bandit keeps no record of its pulls, so none can be pending")
        check_number("reward", reward)
        if is_concrete(self, pull):
            as_count("pull", pull, minimum=0)
            if int(pull) not in self.pending:
                told = ", ".join(map(str, self.pending)) or "none"
                raise ValueError(f"pull must be a pending pull (pending: {told}), got {pull!r}")
        arm = self.pulled[jnp.asarray(pull)]
        rewards = self.belief.as_rewards(arm, reward)
        return self._settled(_arrive(self, jnp.asarray(pull), rewards), arm, reward)

    def _settled(self, played: tuple[Bandit, Array], arm: Any, reward: Any) -> Bandit:
        """The bandit after a reward, if its belief is one; what it has to say is said."""
        bandit, state = played
        belief = self.belief.settled(bandit.belief, state, arm, reward)
        if belief is bandit.belief:
            return bandit
        return eqx.tree_at(lambda b: b.belief, bandit, belief)

    def _check_paid(self, arm: Any) -> None:
        if self.purse is None or not is_concrete(self.purse, arm):
            return
        if not bool(self.purse.affordable()[int(arm)]):
            raise ValueError(f"arm {int(arm)} costs more than the {self.budget:g} that is left")

    @property
    def pending(self) -> tuple[int, ...]:
        """Numbers of the pulls whose reward is not known yet (concrete bandits only)."""
        if self.pulled is None or self.seen is None:
            return ()
        waiting = (np.asarray(self.pulled) >= 0) & ~np.asarray(self.seen)
        return tuple(np.flatnonzero(waiting).tolist())

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
            if self.purse is not None:
                raise ValueError(f"bandit: nothing remains to be played: {self.budget:g} is left")
            raise ValueError(
                f"bandit: nothing remains to be played: all {self.horizon} periods are over"
            )

    # ---- futures
    def sample_outcome(self, key: Any) -> Outcome:
        """A future of the current belief, with `size` rewards per arm."""
        key = as_key(key) if is_concrete(key) else key
        return self.completed(key, self.belief.draw(key, self.size), running=True)

    def sample_truth(self, key: Array) -> Outcome:
        """A future for bounds and simulations: from the user's prior itself (see the belief)."""
        return self.completed(key, self.belief.draw_truth(key, self.size), running=False)

    def completed(self, key: Array, outcome: Outcome, running: bool) -> Outcome:
        """The same future with its delays and its end, where these are random too."""
        delays, periods = self.sample_delays(key), self.sample_periods(key, running)
        if delays is None and periods is None:
            return outcome
        return Outcome(outcome.means, outcome.rewards, outcome.belief, delays, periods)

    def sample_delays(self, key: Array) -> Int[Array, "K N"] | None:
        """Delays of the rewards of a future: pending pulls first, then pulls to come."""
        if self.delay is None:
            return None
        return self.delay.sample(side_key(key, "delays"), self.waited())

    def sample_periods(self, key: Array, running: bool) -> Int[Array, ""] | None:
        """How many periods are played from now on; at least one where play is `running`."""
        if self.survivor is None:
            return None
        weights = self.weights()
        level = jax.random.uniform(side_key(key, "periods"), (), weights.dtype)
        level = level * weights[0] if running else level
        return jnp.sum(weights > level).astype(jnp.int32)

    def weights(self) -> Float[Array, " N"]:
        """Probability that the period s from now is played, given that play has come so far."""
        if self.survivor is None:
            return (jnp.arange(self.size) < self.remaining).astype(
                self.belief.predictive_mean().dtype
            )
        at = self.period + jnp.arange(self.size)
        later = jnp.take(self.survivor, at, mode="fill", fill_value=0)
        here = jnp.take(self.survivor, self.period, mode="clip")
        return jnp.where(self.period > 0, later / here, later)  # at the start nothing has been seen

    def period_weights(self) -> np.ndarray | None:
        """`weights` of the remaining periods on the host; None where the horizon is known."""
        if self.law is None:
            return None
        period = int(self.period)
        later = self.law.values[period:]
        return later / later[0] if period else later

    def waited(self) -> Int[Array, "K N"]:
        """How many periods ago each pull of a future's rewards was made; 0 for pulls to come."""
        columns = jnp.arange(self.size)
        if self.pulled is None or self.seen is None:
            return jnp.zeros((self.num_arms, self.size), jnp.int32)
        waiting = (self.pulled >= 0) & ~self.seen

        def of_arm(arm: Array) -> Array:
            mine = waiting & (self.pulled == arm)
            size = mine.shape[0]
            order = jnp.argsort(~mine, stable=True)  # pending pulls of this arm, oldest first
            ago = jnp.where(jnp.sort(~mine), 0, self.period - order)
            return jnp.pad(ago, (0, max(0, len(columns) - size)))[: len(columns)]

        return jax.vmap(of_arm)(jnp.arange(self.num_arms)).astype(jnp.int32)

    def trimmed(self, size: int) -> Bandit:
        """The same state in arrays sized for at most `size` periods left, without the record."""
        return eqx.tree_at(
            lambda b: (b.pulled, b.seen, b.room),
            self,
            (None, None, Room(size)),
            is_leaf=lambda x: x is None or isinstance(x, Room),
        )

    def without_record(self) -> Bandit:
        """The same, without the record of pulls where nothing is pending and nothing can be."""
        return self if self.pending or self.delay is not None else self.trimmed(self.size)

    def __repr__(self) -> str:
        name = type(self.belief).__name__
        text = f"Bandit({name} with {self.num_arms} arms, horizon={self.horizon}"
        text += "".join(f", {what}" for what in sorted(self.constraints))
        concrete = isinstance(self.remaining, (np.ndarray, jnp.ndarray))
        concrete = concrete and is_concrete(self.remaining) and np.ndim(self.remaining) == 0
        if concrete and int(self.period):
            text += f", period={int(self.period)}, remaining={int(self.remaining)}"
            if self.pending:
                text += f", pending={list(self.pending)}"
        return text + ")"


def check_bandit(bandit: Any) -> None:
    """For the top of every function that takes one."""
    if not isinstance(bandit, Bandit):
        raise ValueError(
            f"bandit must be an irsppl.Bandit, such as Bandit(belief, horizon=60), got {bandit!r}"
        )
    if is_concrete(bandit.belief):
        means = np.asarray(bandit.belief.predictive_mean())
        if not np.all(np.isfinite(means)):
            arm = int(np.flatnonzero(~np.isfinite(means))[0])
            raise ValueError(
                f"bandit: the belief in arm {bandit.arm_labels[arm]} has the mean reward "
                f"{means[arm]:g}, so nothing can be planned. A reward or a parameter was beyond "
                "what its numbers can hold, or the prior mean is infinite"
            )


def _check_labels(labels: Sequence[str] | None, num_arms: int) -> tuple[str, ...] | None:
    if labels is None:
        return None
    if isinstance(labels, str | bytes) or np.ndim(np.asarray(labels, object)) != 1:
        raise ValueError(f"labels must be {num_arms} different names, one per arm, got {labels!r}")
    labels = tuple(str(label) for label in labels)
    if len(labels) != num_arms or len(set(labels)) != num_arms:
        raise ValueError(f"labels must be {num_arms} different names, one per arm, got {labels}")
    return labels


def advance(bandit: Bandit, arm: Array, reward: Array) -> Bandit:
    """`pull` without checks, for traced code."""
    return _record(bandit, arm, True, bandit.belief.given(arm, reward))


def _record(bandit: Bandit, arm: Array, seen: bool, belief: Belief) -> Bandit:
    pulled, known = bandit.pulled, bandit.seen
    if pulled is not None and known is not None:
        pulled = pulled.at[bandit.period].set(arm.astype(jnp.int32))
        known = known.at[bandit.period].set(seen)
    remaining, purse = bandit.remaining - 1, bandit.purse
    if purse is not None:
        purse = purse.pay(arm)
        remaining = jnp.minimum(remaining, purse.pulls_left())
    return eqx.tree_at(
        lambda b: (b.belief, b.remaining, b.period, b.counts, b.pulled, b.seen, b.purse),
        bandit,
        (
            belief,
            remaining,
            bandit.period + 1,
            bandit.counts.at[arm].add(1),
            pulled,
            known,
            purse,
        ),
        is_leaf=lambda x: x is None,
    )


@eqx.filter_jit
def _pull(bandit: Bandit, arm: Array, reward: Array) -> tuple[Bandit, Array]:
    after = advance(bandit, arm, reward)
    return after, examined(bandit.belief, after.belief)


def advance_unseen(bandit: Bandit, arm: Array) -> Bandit:
    """`pull` without a reward and without checks, for traced code."""
    return _record(bandit, arm, False, bandit.belief)


_pull_unseen = eqx.filter_jit(advance_unseen)


def deliver(bandit: Bandit, pull: Array, reward: Array) -> Bandit:
    """`arrive` without checks, for traced code."""
    assert bandit.pulled is not None and bandit.seen is not None
    return eqx.tree_at(
        lambda b: (b.belief, b.seen),
        bandit,
        (bandit.belief.given(bandit.pulled[pull], reward), bandit.seen.at[pull].set(True)),
    )


@eqx.filter_jit
def _arrive(bandit: Bandit, pull: Array, reward: Array) -> tuple[Bandit, Array]:
    after = deliver(bandit, pull, reward)
    return after, examined(bandit.belief, after.belief)
