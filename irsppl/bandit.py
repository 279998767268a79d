"""`Bandit`: the instance (belief, horizon, constraints) and its state as it is played."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from irsppl._checks import as_count, as_key, check_number, is_concrete
from irsppl._fields import changed
from irsppl.beliefs import Belief, examined, sized
from irsppl.budgets import Purse, read_budget
from irsppl.constraints import Access, Arrivals, Constraint, End, Sure
from irsppl.delays import Delay, read_delay
from irsppl.horizons import Law, read_horizon
from irsppl.outcomes import Outcome

C = TypeVar("C", bound=Constraint)


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
    constraints: of your own (`irsppl.constraints`; CONTRIBUTING shows how one is made).

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
    access: Access  # which arms may be pulled
    arrivals: Arrivals  # when rewards are known
    end: End  # when play ends
    room: Room  # the size of arrays, which callers may cut; nothing for a policy to plan with
    horizon: int = eqx.field(static=True)  # periods at the start, as they were stated
    labels: tuple[str, ...] | None = eqx.field(static=True)

    def __init__(
        self,
        belief: Belief,
        horizon: Any = None,
        *,
        delay: Any = None,
        costs: Any = None,
        budget: Any = None,
        labels: Sequence[str] | None = None,
        constraints: Sequence[Constraint] = (),
    ):
        if not isinstance(belief, Belief):
            raise ValueError(
                f"belief must be an irsppl belief such as BetaBernoulli(...), got {belief!r}"
            )
        _check_own(constraints)
        num_arms, dtype = belief.num_arms, belief.predictive_mean().dtype
        access, periods = read_budget(costs, budget, num_arms), None
        self.end = Sure()
        if horizon is not None or not access.binds:
            periods, self.end = read_horizon(horizon, dtype)
        self.end = _slot(End, self.end, constraints)
        self.access, periods = _slot(Access, access, constraints).fit(num_arms, periods, self.end)
        self.arrivals = _slot(Arrivals, read_delay(delay, num_arms, periods), constraints)
        for a, b in itertools.combinations(self.limits, 2):
            if a.name not in b.beside and b.name not in a.beside:
                raise ValueError(f"a {a.name} and a {b.name} together are not planned for")
        self.belief = sized(belief, periods)
        self.horizon = periods
        self.room = Room(periods)
        self.labels = _check_labels(labels, belief.num_arms)
        self.remaining = jnp.asarray(self.horizon, jnp.int32)
        self.period = jnp.asarray(0, jnp.int32)
        self.counts = jnp.zeros(belief.num_arms, jnp.int32)
        # By way of NumPy, which compiles nothing for each horizon.
        self.pulled = jnp.asarray(np.full(self.horizon, -1, np.int32))
        self.seen = jnp.asarray(np.zeros(self.horizon, bool))

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
        return self.access.budget()

    @property
    def purse(self) -> Purse:
        """Costs and money, of a bandit with a budget."""
        assert isinstance(self.access, Purse)
        return self.access

    @property
    def limits(self) -> tuple[Constraint, ...]:
        """The constraints that this bandit has."""
        return tuple(c for c in (self.access, self.arrivals, self.end) if c.binds)

    def check_futures(self, outcomes: Outcome) -> None:
        """`ValueError` where a future that is given, or one of several, cannot be."""
        if not is_concrete(outcomes.delays, outcomes.periods):
            return
        for part in (self.access, self.arrivals, self.end):
            if why := part.impossible(self, outcomes):
                raise ValueError(f"outcome: {why}")

    @property
    def constraints(self) -> frozenset[str]:
        """Their names: "delay", "budget", "horizon law", or those of constraints of your own."""
        return frozenset(constraint.name for constraint in self.limits)

    # ---- play
    def pull(self, arm: Any, reward: Any = None) -> Bandit:
        """One period on. Without `reward` the pull is pending until `arrive` brings its reward."""
        self.check_open()
        self.belief.check_arm(arm)
        if np.shape(arm):
            raise ValueError(f"arm must be one arm, got an array of shape {np.shape(arm)}")
        judged = self.access.binds and is_concrete(self, arm)
        if judged and not bool(self.access.allowed(self)[int(arm)]):
            raise ValueError(self.access.refusal(self, int(arm)))
        if reward is None:
            return _pull_unseen(self, jnp.asarray(arm))
        check_number("reward", reward)
        rewards = self.belief.as_rewards(arm, reward)
        return self._settled(_played(advance, self, jnp.asarray(arm), rewards), arm, reward)

    def arrive(self, pull: Any, reward: Any) -> Bandit:
        """The reward of pull number `pull` (from 0, over all arms) has arrived."""
        if self.pulled is None:
            raise ValueError("this bandit keeps no record of its pulls, so none can be pending")
        check_number("reward", reward)
        if is_concrete(self, pull):
            as_count("pull", pull, minimum=0)
            if int(pull) not in self.pending:
                pending = ", ".join(map(str, self.pending)) or "none"
                raise ValueError(f"pull must be a pending pull (pending: {pending}), got {pull!r}")
        arm = self.pulled[jnp.asarray(pull)]
        rewards = self.belief.as_rewards(arm, reward)
        return self._settled(_played(deliver, self, jnp.asarray(pull), rewards), arm, reward)

    def _settled(self, played: tuple[Bandit, Array], arm: Any, reward: Any) -> Bandit:
        """The bandit after a reward, if its belief is one; what it has to say is said."""
        bandit, state = played
        belief = self.belief.settled(bandit.belief, state, arm, reward)
        return bandit if belief is bandit.belief else changed(bandit, belief=belief)

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
        if is_concrete(self.pulled, self.seen):
            pending = np.asarray(self.pulled)[list(self.pending)]
            return jnp.asarray(np.bincount(pending, minlength=self.num_arms))
        waiting = (self.pulled >= 0) & ~self.seen
        arms = jnp.arange(self.num_arms)[:, None]
        return jnp.sum((self.pulled[None, :] == arms) & waiting[None, :], axis=1)

    def check_open(self) -> None:
        if is_concrete(self.remaining) and int(self.remaining) <= 0:
            raise ValueError(f"bandit: nothing remains to be played: {self.access.over(self)}")

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
        delays, periods = self.arrivals.sample(key, self), self.end.sample(key, self, running)
        if delays is None and periods is None:
            return outcome
        return Outcome(outcome.means, outcome.rewards, outcome.belief, delays, periods)

    def period_weights(self) -> np.ndarray | None:
        """Chances, on the host, that the remaining periods are played; None where all are."""
        return self.end.chances(int(self.period))

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
        return changed(self, pulled=None, seen=None, room=Room(size))

    def without_record(self) -> Bandit:
        """The same, without the record of pulls where nothing is pending and nothing can be."""
        return self if self.pending or self.arrivals.late else self.trimmed(self.size)

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


def _slot(kind: Any, given: C, constraints: Sequence[Constraint]) -> C:
    """The one constraint of this kind, of those that arguments and `constraints` give."""
    for constraint in (c for c in constraints if isinstance(c, kind)):
        if given.binds:
            raise ValueError(
                f"constraints: a {given.name} and a {constraint.name} answer the same question "
                f"({kind.__name__}), and together are not planned for"
            )
        given = constraint
    return given


def _check_own(constraints: Any) -> None:
    several = isinstance(constraints, list | tuple)
    for constraint in constraints if several else [constraints]:
        right = several and isinstance(constraint, (Access, Arrivals, End))
        if not right or constraint.name in ("", Delay.name, Purse.name, Law.name):
            raise ValueError(
                "constraints must be a list of objects of subclasses of irsppl.constraints.Access, "
                f"Arrivals or End, with names of their own, got {constraints!r}"
            )


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


def advance(bandit: Bandit, arm: Array, reward: Array, learn: Any = None) -> Bandit:
    """`pull` without checks, for traced code. learn: (arm, reward) -> belief, if not `given`."""
    return _record(bandit, arm, True, (learn or bandit.belief.given)(arm, reward))


def _record(bandit: Bandit, arm: Array, seen: bool, belief: Belief) -> Bandit:
    pulled, known = bandit.pulled, bandit.seen
    if pulled is not None and known is not None:
        pulled = pulled.at[bandit.period].set(arm.astype(jnp.int32))
        known = known.at[bandit.period].set(seen)
    access = bandit.access.after(arm)
    return changed(
        bandit,
        belief=belief,
        remaining=access.periods(bandit.remaining - 1),
        period=bandit.period + 1,
        counts=bandit.counts.at[arm].add(1),
        pulled=pulled,
        seen=known,
        access=access,
        arrivals=bandit.arrivals.after(arm),
        end=bandit.end.after(arm),
    )


def advance_unseen(bandit: Bandit, arm: Array) -> Bandit:
    """`pull` without a reward and without checks, for traced code."""
    return _record(bandit, arm, False, bandit.belief)


_pull_unseen = eqx.filter_jit(advance_unseen)


def deliver(bandit: Bandit, pull: Array, reward: Array, learn: Any = None) -> Bandit:
    """`arrive` without checks, for traced code; learn: as in `advance`."""
    assert bandit.pulled is not None and bandit.seen is not None
    belief = (learn or bandit.belief.given)(bandit.pulled[pull], reward)
    return changed(bandit, belief=belief, seen=bandit.seen.at[pull].set(True))


def _played(step: Any, bandit: Bandit, which: Array, reward: Array) -> tuple[Bandit, Array]:
    """`advance` or `deliver`, and what is to be said of the belief after it."""
    return _step(step, bandit, which, reward, is_concrete(bandit, which, reward))


@eqx.filter_jit
def _step(
    step: Any, bandit: Bandit, which: Array, reward: Array, settles: bool
) -> tuple[Bandit, Array]:
    """settles: whether the host sees to the belief afterwards."""
    learn = bandit.belief.noted if settles else bandit.belief.given
    after = step(bandit, which, reward, learn)
    return after, examined(bandit.belief, after.belief)
