"""The contract of a penalty, documented once.

A penalty says what a clairvoyant is paid for each pull of a known future, and solves the resulting
deterministic problem. It is dual feasible when a decision maker who does not look ahead is charged
nothing on average; the mean inner value is then an upper bound on what any policy can earn.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from irsppl.bandit import Bandit
from irsppl.beliefs import BetaBernoulli, Conjugate, ExactLaws, ExactMax, NormalNormal
from irsppl.inner.laws import Discrete
from irsppl.outcomes import Outcome
from irsppl.penalties._payoffs import HostPayoff, Inner, Payoff
from irsppl.penalties.arrivals import at_each, periods_of

Values = Float[np.ndarray, " S"]

# What a column on the host may need of a bandit. "pair": the arms of the kernel of V-EMax.
_HAS: dict[str, Callable[[Bandit], bool]] = {
    "plain": lambda bandit: not bandit.pending and not bandit.constraints,
    "conjugate": lambda bandit: isinstance(bandit.belief, Conjugate),
    "pair": lambda bandit: (
        bandit.num_arms == 2 and isinstance(bandit.belief, (BetaBernoulli, NormalNormal))
    ),
}
ANYWHERE: frozenset[str] = frozenset()
PLAIN = frozenset({"plain"})
CONJUGATE = PLAIN | {"conjugate"}


class Column(eqx.Module):
    """A number of each future, as bounds are estimated from."""

    # What `host_values` needs of a bandit (names in `_HAS`); None: there is no `host_values`.
    host_needs: ClassVar[frozenset[str] | None] = None

    @property
    @abc.abstractmethod
    def label(self) -> str:
        """Its name among the columns of a sample."""

    def host_values(self, bandit: Bandit, outcomes: Outcome) -> Values:
        """Of a batch of futures (`outcomes` has a leading axis S), in float64 without XLA."""
        raise NotImplementedError

    def traced_values(self, bandit: Bandit, outcomes: Outcome) -> Values:
        """The same by XLA, for bandits that `host_values` does not serve."""
        raise NotImplementedError

    def values(self, bandit: Bandit, outcomes: Outcome) -> Values:
        """Of a batch of futures, on the host."""
        found = find_evaluator(self, bandit)
        return self.traced_values(bandit, outcomes) if found is None else found(outcomes)

    def batch(self, bandit: Bandit, outcomes: Outcome) -> dict[str, Values]:
        """`values` by label, and beside them the columns that `steadied_by` names."""
        return {self.label: self.values(bandit, outcomes)}


def find_evaluator(column: Column, bandit: Bandit) -> Callable[[Outcome], Values] | None:
    """What computes the column of a batch of futures on the host; None where XLA has to.

    The one place that decides it, for bounds, certificates and controls.
    """
    needs = column.host_needs
    if needs is None or not all(_HAS[need](bandit) for need in needs):
        return None
    return functools.partial(column.host_values, bandit)


class Relaxation(Column):
    """Something that bounds what any policy can earn."""

    name: ClassVar[str]
    # Its value hardly varies, or nothing correlates with it: no control variates.
    plain: ClassVar[bool] = False
    # Whether its values depend on the rewards of a future.
    reads_rewards: ClassVar[bool] = True
    # Whether there is an inner problem that JAX can trace.
    traceable: ClassVar[bool] = False
    # Constraints of a bandit that it plans for: "delay", "budget", "horizon law". A constraint of
    # one's own may also name those that plan for it (`Constraint.planned_by`).
    serves: ClassVar[frozenset[str]] = frozenset()

    def check(self, bandit: Bandit) -> None:
        """Raise `ValueError`, with the reason, where it cannot serve the bandit."""

    def check_bound(self, bandit: Bandit) -> None:
        """The same where it serves a policy, but its mean inner value is no bound."""

    def verify(self, bandit: Bandit, as_bound: bool = False) -> None:
        """All checks, before any work."""
        check_constraints(self.name, self.serves, bandit)
        self.check(bandit)
        if as_bound:
            self.check_bound(bandit)

    @property
    def label(self) -> str:
        """Its name, and what tells it from others of that name."""
        return self.name

    def exact(self, bandit: Bandit) -> float | None:
        """The bound without sampling, in float64, where an integral or a sum will do."""
        return None

    def steadied_by(self, bandit: Bandit) -> dict[str, float]:
        """Columns of `batch` with known means, which serve as control variates."""
        return {}

    def saturating(self) -> frozenset[str]:
        """Those of them that values do not follow where they are extreme."""
        return frozenset()

    def fitted(
        self, bandit: Bandit, draw: Callable[[int, int], Outcome], known: dict[str, float]
    ) -> Relaxation:
        """The same with what it leaves open settled on a pilot: futures draw(start, count).

        known: control variates, names of penalties with their exact means.
        """
        return self

    def work(self, bandit: Bandit) -> int:
        """How many inner problems the pilot of `fitted` solves, about."""
        return 0

    def report(self) -> dict[str, Any]:
        """What was settled on a pilot."""
        return {}


class Penalty(Relaxation):
    """Variants implement `inner` for one future; the rest has defaults that they may sharpen."""

    # No policy plays the first action (it would not be a sensible policy).
    bound_only: ClassVar[bool] = False
    # Work grows with the size of the arrays, so long runs are cut into segments of falling size.
    grows: ClassVar[bool] = True
    traceable: ClassVar[bool] = True
    # In the last period it pays predictive means, so that its policy leaves nothing to chance.
    settles: ClassVar[bool] = False

    @abc.abstractmethod
    def inner(self, bandit: Bandit, outcome: Outcome) -> Inner:
        """Solve the inner problem of one future; traceable, the remaining horizon is data."""

    def decide(self, key: Array, bandit: Bandit) -> Array:
        """Sample a future and play the first action of its solution."""
        return jnp.asarray(self.inner(bandit, bandit.sample_outcome(key)).action)

    def traced_values(self, bandit: Bandit, outcomes: Outcome) -> np.ndarray:
        return np.asarray(_inner_values(self, bandit, outcomes), np.float64)


@eqx.filter_jit
def _inner_values(penalty: Penalty, bandit: Bandit, outcomes: Outcome) -> Array:
    return jax.vmap(lambda outcome: jnp.asarray(penalty.inner(bandit, outcome).value))(outcomes)


class PayoffPenalty(Penalty):
    """A penalty that says what pulls pay, and leaves the solution to the kind of payoff."""

    @abc.abstractmethod
    def payoff(self, bandit: Bandit, outcome: Outcome) -> Payoff:
        """What the pulls of one future pay; traceable, the remaining horizon is data."""

    def host_payoff(self, bandit: Bandit, outcomes: Outcome) -> HostPayoff:
        """The same of a batch, in float64 without XLA, where the bandit has its `host_needs`."""
        raise NotImplementedError

    def periods(self, bandit: Bandit, outcome: Outcome) -> Int[Array, ""]:
        """Periods to plan for in this future."""
        return periods_of(bandit, outcome)

    def inner(self, bandit: Bandit, outcome: Outcome) -> Inner:
        return self.payoff(bandit, outcome).solve(bandit, self.periods(bandit, outcome))

    def host_values(self, bandit: Bandit, outcomes: Outcome) -> np.ndarray:
        return self._solved(self.host_payoff(bandit, outcomes), bandit, outcomes)

    def traced_values(self, bandit: Bandit, outcomes: Outcome) -> np.ndarray:
        if jax.default_backend() != "cpu":
            return super().traced_values(bandit, outcomes)
        payoff = _payoffs(self, bandit, outcomes)  # where XLA runs on a CPU, kernels solve faster
        if not isinstance(payoff, HostPayoff):
            return np.asarray(payoff, np.float64)
        return self._solved(payoff, bandit, outcomes)

    def _solved(self, payoff: HostPayoff, bandit: Bandit, outcomes: Outcome) -> np.ndarray:
        periods = np.asarray(self.periods(bandit, outcomes))
        return payoff.values(bandit, np.broadcast_to(periods, (len(outcomes.rewards),)))


@eqx.filter_jit
def _payoffs(penalty: PayoffPenalty, bandit: Bandit, outcomes: Outcome) -> Any:
    """Payoffs of a batch, for kernels to solve; inner values where there is none."""

    def one(outcome: Outcome) -> Any:
        payoff = penalty.payoff(bandit, outcome)
        if isinstance(payoff, HostPayoff):
            return payoff
        return jnp.asarray(payoff.solve(bandit, penalty.periods(bandit, outcome)).value)

    return jax.vmap(one)(outcomes)


# ---- shared by several penalties


def check_constraints(name: str, serves: frozenset[str], bandit: Bandit) -> None:
    """Refuse a bandit with a constraint for which neither side has said that it is planned for."""
    for constraint in sorted(bandit.limits, key=lambda c: c.name):
        if constraint.name in serves or name in constraint.planned_by:
            continue
        instead = constraint.instead or ", ".join(map(repr, sorted(constraint.planned_by)))
        raise ValueError(
            f"{name} does not plan for a {constraint.name}, which this bandit has; use "
            f"{instead or 'a policy of your own'}"
        )


# A bound that needs one quadrature per period is sampled instead beyond so many.
MOST_QUADRATURES = 5000


def total_weight(bandit: Bandit) -> float:
    """Expected number of periods from now on, on the host."""
    weights = bandit.period_weights()
    return float(int(bandit.remaining)) if weights is None else float(weights.sum())


def future_means(bandit: Bandit, outcome: Outcome) -> Float[Array, "K N+1"]:
    """`[a, n]`: posterior mean of arm a when its pending rewards and n more of it are known."""
    future = (outcome.belief or bandit.belief).along(outcome.rewards)
    return after_pending(bandit, future.own_means())


def after_pending(bandit: Bandit, path: Float[Array, "K N"]) -> Float[Array, "K N"]:
    """A table along each arm's rewards, started behind the pending ones (which come first)."""
    pending = bandit.pending_counts
    return path if pending is None else _start_rows(path, pending)


def after_pending_batch(bandit: Bandit, rewards: Float[Array, "S K N"]) -> Float[Array, "S K N"]:
    """The rewards of the pulls to come of each future, those of pending pulls left out."""
    pending = bandit.pending_counts
    if pending is None or not np.any(np.asarray(pending)):
        return rewards
    return jax.vmap(lambda table: _start_rows(jnp.asarray(table), pending))(rewards)


def _start_rows(path: Array, start: Array) -> Array:
    return at_each(path, jnp.arange(path.shape[1])[None, :] + start[:, None])


def lattice_after_pending(bandit: Bandit, table: Array, first: int = 0) -> Array:
    """A table over counts, its origin moved behind the pending pulls; axes from `first` on."""
    pending = bandit.pending_counts
    if pending is None:
        return table
    for arm in range(bandit.num_arms):
        table = jnp.roll(table, -pending[arm], axis=first + arm)  # what wraps is never reached
    return table


# The law of an arm's mean after so many rewards that are counts has too many points beyond this.
_MOST_COUNTED = 100_000


def exact_max_after(bandit: Bandit, n: int | None) -> float | None:
    """E[max_a mu_hat_a] before the decision n periods from now if every arm were always pulled.

    n None: E[max_a mu_a]. None where there is no closed form or sum, or an arm may not be pulled.
    """
    belief = bandit.belief
    if bandit.access.binds or not isinstance(belief, ExactMax):
        return None
    if n is None:
        return belief.exact_expected_best(None)
    if n > _MOST_COUNTED and isinstance(belief, ExactLaws):
        laws = belief.law(1)
        if laws is None or any(isinstance(law, Discrete) for law in laws):
            return None
    if bandit.arrivals.late:
        missed = bandit.arrivals.missed(belief.num_arms)
        if missed is None or bandit.pending:
            return None
        return belief.exact_expected_best(np.asarray([max(n - d, 0) for d in missed]))
    if not belief.is_independent and bandit.pending:
        return None
    pending = bandit.pending_counts
    waiting = np.zeros(belief.num_arms, int) if pending is None else np.asarray(pending)
    return belief.exact_expected_best(n + waiting)


def host_future_means(bandit: Bandit, outcomes: Outcome) -> Float[np.ndarray, "S K N+1"]:
    """`future_means` of a batch, N = remaining, in float64; for what needs `CONJUGATE`."""
    belief = bandit.belief
    assert isinstance(belief, Conjugate)
    rewards = np.asarray(outcomes.rewards)[:, :, : int(bandit.remaining)]
    return natural_means(belief.natural_state(), rewards)


def natural_means(natural: tuple[np.ndarray, np.ndarray], rewards: np.ndarray) -> np.ndarray:
    """[S, K, N+1]: posterior means after 0 .. N of rewards [S, K, N], in float64 on the host."""
    xi, nu = natural
    size = rewards.shape[2] + 1
    means = np.empty((*rewards.shape[:2], size))
    means[:, :, 0] = 0.0
    np.cumsum(rewards, axis=2, dtype=np.float64, out=means[:, :, 1:])
    means += xi[None, :, None]
    means /= nu[None, :, None] + np.arange(size)[None, None, :]
    return means
