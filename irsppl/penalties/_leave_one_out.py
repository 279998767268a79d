"""What leave-one-out penalties share: what they refuse, their batches, and their pilots.

Let the (n+1)-th pull of arm a pay mu_hat_{a,n} - Z_a(n) with

    E[Z_a(n) | the first n rewards of a, all rewards of the other arms] = 0.

Whether a gets an (n+1)-th pull is decided, under any policy that does not look ahead, by the first
n rewards of a, by the other arms' rewards and by coin tosses; so the Z that a policy collects have
mean zero, and the best inner value is a bound. What a pull pays depends on (a, n) alone: the inner
problem is the allocation of IRS.V-Zero, which is the case Z = 0. See docs/leave-one-out.md, also
for delays, budgets, laws of the horizon and pending pulls.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import ClassVar

import jax
import numpy as np

from irsppl._checks import is_concrete
from irsppl.bandit import Bandit
from irsppl.beliefs._conjugate import Conjugate
from irsppl.beliefs._points import Points
from irsppl.outcomes import Outcome
from irsppl.penalties._base import Inner, Penalty
from irsppl.penalties._controls import controls, known_means
from irsppl.penalties._moments import moments
from irsppl.penalties._schedule import plan_of
from irsppl.penalties._view import View
from irsppl.penalties.ff import FF
from irsppl.penalties.fh import FH
from irsppl.penalties.ts import TS

# Tables of one-armed values may take so much memory.
_MOST_BYTES = 800e6


def check_leave_one_out(name: str, bandit: Bandit, shares: tuple[float, ...]) -> None:
    """Raise `ValueError`, with the reason, where the argument does not hold or is not built."""
    if not bandit.belief.is_independent:
        raise ValueError(
            f"{name} needs independent arms: here a reward of one arm tells of the others; use "
            "'irs.v-zero-separable' or 'irs.ff'"
        )
    if bandit.num_arms < 2:
        raise ValueError(f"{name} needs at least two arms: it penalises one by what others show")
    if not isinstance(bandit.belief, (Conjugate, Points)):
        raise ValueError(
            f"{name} is not built for {type(bandit.belief).__name__}; use 'irs.v-zero' or 'irs.ff'"
        )
    if isinstance(bandit.remaining, jax.core.Tracer) or isinstance(bandit.pulled, jax.core.Tracer):
        return
    found, plan = moments(bandit.belief), plan_of(bandit, shares)
    each = plan.rows**2 / 2 * 40 if found.binary else plan.rows * 281 * 17
    arms = np.column_stack([found.mean, found.worth, plan.units, plan.ends])
    kinds = len(np.unique(arms if found.binary else arms[:, [1, *range(3, arms.shape[1])]], axis=0))
    needed = 4.0 * each * kinds * plan.blocks
    if needed > _MOST_BYTES:
        raise ValueError(
            f"{name} would need {needed / 1e6:,.0f} MB of tables for {plan.rows} periods and "
            f"{kinds} different priors, more than {_MOST_BYTES / 1e6:,.0f} MB; use 'irs.v-zero'"
        )


class LeaveOneOut(Penalty):
    """A penalty that is solved on the host."""

    on_host: ClassVar[bool] = True
    bound_only: ClassVar[bool] = True
    traceable: ClassVar[bool] = False
    serves: ClassVar[frozenset[str]] = frozenset({"delay", "budget", "horizon law"})

    def check(self, bandit: Bandit) -> None:
        check_leave_one_out(self.name, bandit, self.shares)

    @property
    @abc.abstractmethod
    def levels(self) -> tuple[float, ...]:
        """Shares of the horizon at which it looks at the other arms."""

    @property
    def shares(self) -> tuple[float, ...]:
        """Shares of the horizon at which its one-armed values end."""
        return (1.0,)

    @abc.abstractmethod
    def solve(self, bandit: Bandit, view: View) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(values [S], counts [S, K], sum of all penalties [S]) of a batch of futures."""

    def inner(self, bandit: Bandit, outcome: Outcome) -> Inner:
        if not is_concrete(bandit, outcome):
            raise ValueError(f"{self.name} is solved on the host: it cannot be traced by JAX")
        batch = jax.tree.map(lambda leaf: leaf[None], outcome)
        values, counts, _ = self.solve(bandit, View(bandit, batch, self.shares))
        action = np.argmax(counts[0]) if counts[0].any() else -1
        return Inner(values[0], action, counts[0])

    def values(self, bandit: Bandit, outcomes: Outcome) -> np.ndarray:
        return self.solve(bandit, View(bandit, outcomes, self.shares))[0]

    def batch(self, bandit: Bandit, outcomes: Outcome) -> dict[str, np.ndarray]:
        view = View(bandit, outcomes, self.shares)
        values, _, sums = self.solve(bandit, view)
        columns = {c.label: c.of(view) for c in controls(self.levels)}
        return {self.label: values, self._sum: sums, **columns}

    @property
    def _sum(self) -> str:
        return f"{self.label}: sum of penalties"

    def steadied_by(self, bandit: Bandit) -> dict[str, float]:
        known = known_means(bandit, self.levels)
        return {self._sum: 0.0, **{control.label: mean for control, mean in known.items()}}


# ---- pilots

# Futures number start, start + 1, ... of a pilot.
Draw = Callable[[int, int], Outcome]
_OTHERS: dict[str, Penalty] = {"irs.ff": FF(), "irs.fh": FH(), "ts": TS()}


class Pilot:
    """Futures on which a penalty is fitted, never the ones that its bound is then estimated on.

    `intercept @ x` estimates the mean of x [S] with the controls' help: the first row of the
    pseudo-inverse of [1, controls]. Without controls a fit would chase the noise of the best arm.
    """

    def __init__(
        self,
        bandit: Bandit,
        draw: Draw,
        count: int,
        known: dict[str, float],
        levels: tuple[float, ...],
        shares: tuple[float, ...] = (1.0,),
    ):
        outcomes = draw(0, count)
        self.view = View(bandit, outcomes, shares)
        columns = [_OTHERS[name].values(bandit, outcomes) - mean for name, mean in known.items()]
        steady = known_means(bandit, levels).items()
        self.columns = columns + [control.of(self.view) - mean for control, mean in steady]

    def intercept(self, more: list[np.ndarray]) -> np.ndarray:
        """[S]; more: further columns of mean zero."""
        columns = [c / spread for c in self.columns + more if (spread := c.std()) > 0]
        design = np.stack([np.ones(len(self.view)), *columns], axis=1)
        return np.linalg.pinv(design, rcond=1e-4)[0]
