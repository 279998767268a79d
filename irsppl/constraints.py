"""What limits play: which arms may be pulled, when rewards are known, when play ends.

A bandit has one object for each of these three questions: an `Access`, an `Arrivals` and an `End`.
`Free`, `Prompt` and `Sure` limit nothing; a constraint is a subclass with a `name` that answers
otherwise. `irsppl.budgets`, `irsppl.delays` and `irsppl.horizons` have one each; one of your own is
given to a bandit by `Bandit(..., constraints=[...])`.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from irsppl.inner.allocation import allocate, allocate_batch
from irsppl.outcomes import Outcome

C = TypeVar("C", bound="Constraint")


class Moment(Protocol):
    """What a constraint may look at: a bandit at some moment of its play."""

    @property
    def belief(self) -> Any: ...
    @property
    def num_arms(self) -> int: ...
    @property
    def horizon(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def period(self) -> Int[Array, ""]: ...
    @property
    def remaining(self) -> Int[Array, ""]: ...
    @property
    def counts(self) -> Int[Array, " K"]: ...
    def waited(self) -> Int[Array, "K N"]: ...


class Constraint(eqx.Module):
    """An immutable pytree; arrays keep their shapes as play goes on."""

    # In messages and in `bandit.constraints`; empty where nothing is limited.
    name: ClassVar[str] = ""
    # Penalties and policies that are right under it, beside those that name it in their `serves`.
    # All others refuse it. "ts" must be among them: regret is measured by its inner value.
    planned_by: ClassVar[frozenset[str]] = frozenset()
    # What to use in the place of those; empty: whoever is in `planned_by`.
    instead: ClassVar[str] = ""
    # Other constraints that a bandit may have beside this one.
    beside: ClassVar[frozenset[str]] = frozenset()
    # The field of `Outcome` that a future needs because of it, if any.
    draws: ClassVar[str] = ""

    @property
    def binds(self) -> bool:
        return bool(self.name)

    def after(self: C, arm: Array) -> C:
        """The same after a pull of the arm; traceable."""
        return self

    def of_arms(self: C, arms: Sequence[int]) -> C:
        """The same for some of the arms only, on the host."""
        return self

    def check_more_arms(self) -> None:
        """Raise `ValueError` where an arm cannot join those that there are."""

    def completed(self, outcome: Outcome) -> Outcome:
        """An outcome written by hand with all it needs; `ValueError` where it must bring that."""
        return outcome

    def impossible(self, bandit: Moment, outcomes: Outcome) -> str:
        """Why a future that is given, or one of several, cannot be; empty where it can."""
        return ""


class Access(Constraint):
    """Which arms may be pulled, and how pulls are planned where not every one may.

    The engine's part of it answers the same questions (`irsppl.engine.verbs`).
    """

    # Whether play may end before its periods do (a policy says so by -1).
    may_stop: ClassVar[bool] = False

    def fit(self, num_arms: int, periods: int | None, end: End) -> tuple[Access, int]:
        """This and the periods of a new bandit; `ValueError` where it does not fit.

        periods: as many as there may be; None where only the constraint says how many.
        """
        assert periods is not None
        return self, periods

    @abc.abstractmethod
    def allowed(self, bandit: Moment, pulls: Sequence[Array] = ()) -> Bool[Array, "K ..."]:
        """Which arms may be pulled now; or after `pulls[a]` [...] more pulls of each arm a."""

    def refusal(self, bandit: Moment, arm: int) -> str:
        """Why the arm may not be pulled now."""
        return f"arm {arm} may not be pulled in period {int(bandit.period)}: {self.name}"

    def periods(self, remaining: Array) -> Int[Array, ""]:
        """Periods that can be played, of those that remain."""
        return remaining

    def over(self, bandit: Moment) -> str:
        """Why nothing more can be played."""
        return f"all {bandit.horizon} periods are over"

    def most(self, bandit: Moment) -> Int[Array, " K"]:
        """Pulls of each arm from now on, if no other is pulled."""
        return jnp.broadcast_to(bandit.remaining, (bandit.num_arms,))

    def before(self, bandit: Moment) -> Int[Array, "1 K"] | Int[Array, "K K"]:
        """Pulls of each arm b that may come before a pull of a: `[a, b]`, or `[0, b]` for any a.

        No fewer than any policy can make: penalties reveal the rewards of so many.
        """
        return jnp.minimum(self.most(bandit), bandit.remaining - 1)[None, :]

    def units(self, bandit: Moment) -> Float[np.ndarray, " K"]:
        """What a pull takes of what is scarcest for it, against a period's share; on the host."""
        return np.ones(bandit.num_arms)

    def first(self, bandit: Moment, pulls: Int[Array, " K"]) -> Int[Array, ""]:
        """What to do first of so many pulls of each arm: the arm with the most, -1 to stop.

        Any arm with a pull would do; the most pulled one makes it like TS for long horizons (paper,
        Proposition on asymptotic behaviour).
        """
        arm = jnp.argmax(jnp.where(self.allowed(bandit), pulls, -1))
        return jnp.where(jnp.sum(pulls) > 0, arm, -1) if self.may_stop else arm

    def best_constant(
        self, bandit: Moment, each: Float[Array, " K"], periods: Int[Array, ""]
    ) -> tuple[Float[Array, ""], Int[Array, " K"]]:
        """Value and pulls of the best plan where every pull of arm a pays `each[a]`; traceable."""
        raise ValueError(f"{self.name} does not say how constant payoffs are planned")

    def best_groups(
        self, bandit: Moment, total: Float[Array, "K N+1"], periods: Int[Array, ""]
    ) -> tuple[Float[Array, ""], Int[Array, " K"]]:
        """The same where the first n pulls of arm a pay `total[a, n]`."""
        raise ValueError(f"{self.name} does not say how payoffs by pull are planned")

    def constant_values(
        self, bandit: Moment, each: Float[np.ndarray, "S K"], periods: Int[np.ndarray, " S"]
    ) -> Float[np.ndarray, " S"]:
        """Values of `best_constant` for a batch, on the host."""
        return np.asarray(_plans(self.best_constant, bandit, each, periods)[0], np.float64)

    def group_plans(
        self, bandit: Moment, total: Float[np.ndarray, "S K N+1"], periods: Int[np.ndarray, " S"]
    ) -> tuple[Float[np.ndarray, " S"], Int[np.ndarray, "S K"]]:
        """`best_groups` of a batch, on the host."""
        values, pulls = _plans(self.best_groups, bandit, total, periods)
        return np.asarray(values, np.float64), np.asarray(pulls)

    # ---- money: None where pulls cost nothing
    def budget(self) -> Any:
        """Money left: a float (an array where JAX traces)."""
        return None

    def account(self) -> tuple[int, list[int]] | tuple[None, None]:
        """Money left and costs in whole units, on the host."""
        return None, None

    def restored(self, money: int | None) -> Access:
        """The same with so many units left."""
        return self


@eqx.filter_jit
def _plans(solve: Callable[..., Any], bandit: Moment, payoffs: Any, periods: Any) -> Any:
    return jax.vmap(lambda payoff, length: solve(bandit, payoff, length))(payoffs, periods)


class Free(Access):
    """Every arm may be pulled in every period."""

    def allowed(self, bandit: Moment, pulls: Sequence[Array] = ()) -> Bool[Array, "K ..."]:
        shape = np.broadcast_shapes(*(np.shape(count) for count in pulls))
        return jnp.ones((bandit.num_arms, *shape), bool)

    def best_constant(self, bandit: Moment, each: Array, periods: Array) -> tuple[Array, Array]:
        arm = jnp.argmax(each)
        return periods * each[arm], jnp.where(jnp.arange(len(each)) == arm, periods, 0)

    def best_groups(self, bandit: Moment, total: Array, periods: Array) -> tuple[Array, Array]:
        return allocate(total, periods)

    def constant_values(self, bandit: Moment, each: Any, periods: np.ndarray) -> np.ndarray:
        return periods * each.max(axis=1)

    def group_plans(self, bandit: Moment, total: Any, periods: np.ndarray) -> tuple[Any, Any]:
        return allocate_batch(total[:, :, : periods.max() + 1], periods)


class Arrivals(Constraint):
    """When the rewards of pulls are known. Delays are independent of rewards.

    A future tells by `Outcome.delays` how many decisions each reward misses.
    """

    # Whether a reward can miss a decision.
    late: ClassVar[bool] = True

    @abc.abstractmethod
    def missed(self, num_arms: int) -> tuple[int, ...] | None:
        """Decisions that the rewards of each arm miss; None where that is random."""

    @abc.abstractmethod
    def sample(self, key: Array, bandit: Moment) -> Int[Array, "K N"] | None:
        """Delays of the rewards of a future: pending pulls first, then pulls to come."""

    @abc.abstractmethod
    def draw(self, bandit: Moment, uniforms: Callable[..., np.ndarray]) -> np.ndarray | None:
        """The same [S, K, N] of many futures on the host; uniforms(K, N) gives levels [S, K, N]."""

    def shown(self, num_arms: int, periods: int) -> Float[np.ndarray, " K"]:
        """Mean number of an arm's rewards known at the last of so many pulls, if all are of it."""
        return np.full(num_arms, float(periods - 1))


class Prompt(Arrivals):
    """Every reward is known before the next decision."""

    late: ClassVar[bool] = False

    def impossible(self, bandit: Moment, outcomes: Outcome) -> str:
        late = outcomes.delays is not None and np.any(np.asarray(outcomes.delays))
        return "delays must be 0, or not given: every reward is known at once" if late else ""

    def missed(self, num_arms: int) -> tuple[int, ...]:
        return (0,) * num_arms

    def sample(self, key: Array, bandit: Moment) -> None:
        return None

    def draw(self, bandit: Moment, uniforms: Callable[..., np.ndarray]) -> None:
        return None


class End(Constraint):
    """When play ends. A future tells by `Outcome.periods` for how long it goes on."""

    @abc.abstractmethod
    def sample(self, key: Array, bandit: Moment, running: bool) -> Int[Array, ""] | None:
        """How many periods are played from now on; at least one where play is `running`."""

    @abc.abstractmethod
    def draw(self, bandit: Moment, uniforms: Callable[..., np.ndarray]) -> np.ndarray | None:
        """The same [S] of many futures on the host; uniforms(1) gives levels [S, 1]."""

    @abc.abstractmethod
    def weights(self, bandit: Moment) -> Float[Array, " N"]:
        """Probability that the period s from now is played, given that play has come so far."""

    @abc.abstractmethod
    def chances(self, period: int) -> Float[np.ndarray, " T"] | None:
        """`weights` of the remaining periods on the host; None where the horizon is known."""

    def beyond(self, period: int) -> float:
        """Expected periods after those that are planned for, given that play has come so far."""
        return 0.0


class Sure(End):
    """The horizon is known."""

    def impossible(self, bandit: Moment, outcomes: Outcome) -> str:
        known, given = int(bandit.remaining), outcomes.periods
        if given is None or np.all(np.asarray(given) == known):
            return ""
        return f"periods must be {known}, or not given: the horizon is known"

    def sample(self, key: Array, bandit: Moment, running: bool) -> None:
        return None

    def draw(self, bandit: Moment, uniforms: Callable[..., np.ndarray]) -> None:
        return None

    def weights(self, bandit: Moment) -> Float[Array, " N"]:
        left = jnp.arange(bandit.size) < bandit.remaining
        return left.astype(bandit.belief.predictive_mean().dtype)

    def chances(self, period: int) -> None:
        return None
