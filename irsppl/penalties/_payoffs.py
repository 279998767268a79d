"""What pulls pay in an inner problem: one class for each kind of payoff, and who solves it.

A penalty returns one of these for a future; the bandit's `Access` knows the best plan where not
every arm may always be pulled. A new kind of payoff is a class here with `solve` (traceable, one
future); a `HostPayoff` also has `values`, by which a kernel solves batches on the CPU.
"""

from __future__ import annotations

import abc

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from irsppl.bandit import Bandit
from irsppl.inner.knapsack import pulls_of
from irsppl.inner.lattice import solve_lattice


class Inner(eqx.Module):
    """Solution of an inner problem.

    value: total payoff; action: first arm to pull (-1 = stop); pulls [K]; sequence [T]: the arms in
    order, where order matters (None elsewhere), -1 after the last period.
    """

    value: Float[ArrayLike, ""]
    action: Int[ArrayLike, ""]
    pulls: Int[ArrayLike, " K"]
    sequence: Int[ArrayLike, " T"] | None = None


class Payoff(eqx.Module):
    """What the pulls of one future pay."""

    @abc.abstractmethod
    def solve(self, bandit: Bandit, periods: Int[Array, ""]) -> Inner:
        """The best pulls of this future, `periods` of them or as many as money buys; traceable."""


class HostPayoff(Payoff):
    """One whose batches a CPU kernel solves; S futures have a leading axis."""

    @abc.abstractmethod
    def values(self, bandit: Bandit, periods: np.ndarray) -> Float[np.ndarray, " S"]:
        """Total payoffs of the best pulls of each future, periods [S], in float64."""


class PerArm(HostPayoff):
    """Every pull of an arm pays the same."""

    each: Float[ArrayLike, "... K"]

    def solve(self, bandit: Bandit, periods: Int[Array, ""]) -> Inner:
        value, pulls = bandit.access.best_constant(bandit, jnp.asarray(self.each), periods)
        return Inner(value, bandit.access.first(bandit, pulls), pulls)

    def values(self, bandit: Bandit, periods: np.ndarray) -> np.ndarray:
        each = np.asarray(self.each, np.float64)
        return bandit.access.constant_values(bandit, each, periods)


class PerPull(HostPayoff):
    """The n-th pull of an arm pays `each[a, n]`, whenever it is made."""

    each: Float[ArrayLike, "... K N"]

    def solve(self, bandit: Bandit, periods: Int[Array, ""]) -> Inner:
        total = jnp.pad(jnp.cumsum(jnp.asarray(self.each), axis=1), ((0, 0), (1, 0)))
        value, pulls = bandit.access.best_groups(bandit, total, periods)
        return Inner(value, bandit.access.first(bandit, pulls), pulls)

    def values(self, bandit: Bandit, periods: np.ndarray) -> np.ndarray:
        each = np.asarray(self.each)
        total = np.zeros((*each.shape[:2], each.shape[2] + 1))
        np.cumsum(each, axis=2, dtype=np.float64, out=total[:, :, 1:])
        return bandit.access.group_plans(bandit, total, periods)[0]


def require_free(bandit: Bandit) -> None:
    """For payoffs that are solved as if every arm may always be pulled."""
    if bandit.access.binds:
        raise ValueError(f"payoffs by period are not planned under a {bandit.access.name}")


class PerPeriod(HostPayoff):
    """A pull in period t pays `each[a, t]`; periods that are not `played` pay nothing."""

    each: Float[ArrayLike, "... K N"]
    played: Bool[ArrayLike, "... N"]

    def solve(self, bandit: Bandit, periods: Int[Array, ""]) -> Inner:
        require_free(bandit)
        each, played = jnp.asarray(self.each), jnp.asarray(self.played)
        arms = jnp.argmax(each, axis=0)
        sequence = jnp.where(played, arms, -1)
        value = jnp.sum(jnp.where(played, each.max(axis=0), 0))
        return Inner(value, arms[0], pulls_of(sequence, len(each)), sequence)

    def values(self, bandit: Bandit, periods: np.ndarray) -> np.ndarray:
        require_free(bandit)
        best = np.asarray(self.each, np.float64).max(axis=1)
        return np.where(np.asarray(self.played), best, 0).sum(axis=1)


class PerMoney(HostPayoff):
    """A pull after so many cells of money are spent pays `each[a, cells]`, or `[a, t, cells]`."""

    each: Float[ArrayLike, "..."]
    by_period: bool = eqx.field(static=True)

    def solve(self, bandit: Bandit, periods: Int[Array, ""]) -> Inner:
        each = jnp.asarray(self.each)
        value, sequence = bandit.purse.best_feedback(bandit, each, self.by_period)
        return Inner(value, sequence[0], pulls_of(sequence, bandit.num_arms), sequence)

    def values(self, bandit: Bandit, periods: np.ndarray) -> np.ndarray:
        return bandit.purse.feedback_values(bandit, np.asarray(self.each), self.by_period)


class PerCounts(Payoff):
    """A pull when every arm has been pulled so often pays `each[a, n_1, ..., n_K]`.

    most_pulled: not the first arm of the best order is played but the one that it pulls most.
    """

    each: Float[Array, "K ..."]
    most_pulled: bool = eqx.field(static=True, default=False)

    def solve(self, bandit: Bandit, periods: Int[Array, ""]) -> Inner:
        num_arms, size = self.each.shape[:2]
        each, access, allowed = self.each, bandit.access, None
        if access.binds:
            counts = jnp.meshgrid(*[jnp.arange(size)] * num_arms, indexing="ij")
            allowed = access.allowed(bandit, counts)
            if not access.may_stop:  # the solver would take `allowed` for leave to stop
                each, allowed = jnp.where(allowed, each, -jnp.inf), None
        value, sequence = solve_lattice(each, periods, num_arms, size, allowed)
        pulls = pulls_of(sequence, num_arms)
        action = access.first(bandit, pulls) if self.most_pulled else sequence[0]
        return Inner(value, action, pulls, sequence)
