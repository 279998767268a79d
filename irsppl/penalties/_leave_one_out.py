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
from collections.abc import Callable, Iterator
from typing import ClassVar, Generic, TypeVar

import jax
import numpy as np

from irsppl._checks import is_concrete
from irsppl._running import FARTHEST
from irsppl.bandit import Bandit
from irsppl.beliefs import Conjugate, JointPoints, LinearGaussian, Points
from irsppl.outcomes import Outcome, block_size, blocks
from irsppl.penalties._controls import controls, known_means
from irsppl.penalties._joint_view import JointView
from irsppl.penalties._moments import moments
from irsppl.penalties._schedule import plan_of
from irsppl.penalties._view import View
from irsppl.penalties.base import ANYWHERE, Inner, Penalty
from irsppl.penalties.ff import FF
from irsppl.penalties.fh import FH
from irsppl.penalties.ts import TS

# Tables of one-armed values may take so much memory.
_MOST_BYTES = 800e6


def check_leave_one_out(name: str, bandit: Bandit, shares: tuple[float, ...]) -> None:
    """Raise `ValueError`, with the reason, where the argument does not hold or is not built."""
    if bandit.num_arms < 2:
        raise ValueError(f"{name} needs at least two arms: it penalises one by what others show")
    if not isinstance(bandit.belief, (Conjugate, Points, LinearGaussian, JointPoints)):
        raise ValueError(
            f"{name} is not built for {type(bandit.belief).__name__}; use 'irs.v-zero' or 'irs.ff'"
        )
    if isinstance(bandit.remaining, jax.core.Tracer) or isinstance(bandit.pulled, jax.core.Tracer):
        return
    if not bandit.belief.is_independent:
        if bandit.constraints or bandit.pending:
            held = ", ".join(sorted(bandit.constraints)) or "pending pulls"
            raise ValueError(
                f"{name} is not built for correlated arms with constraints, here {held}; use "
                "'irs.v-zero-separable' or 'irs.ff'"
            )
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

    host_needs: ClassVar[frozenset[str] | None] = ANYWHERE
    bound_only: ClassVar[bool] = True
    traceable: ClassVar[bool] = False
    settles: ClassVar[bool] = True
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

    def view(self, bandit: Bandit, outcomes: Outcome) -> View:
        if bandit.belief.is_independent:
            return View(bandit, outcomes, self.shares)
        return JointView(bandit, outcomes, max(self.levels))

    def inner(self, bandit: Bandit, outcome: Outcome) -> Inner:
        if not is_concrete(bandit, outcome):
            raise ValueError(f"{self.name} is solved on the host: it cannot be traced by JAX")
        batch = jax.tree.map(lambda leaf: leaf[None], outcome)
        values, counts, _ = self.solve(bandit, self.view(bandit, batch))
        action = np.argmax(counts[0]) if counts[0].any() else -1
        return Inner(values[0], action, counts[0])

    def host_values(self, bandit: Bandit, outcomes: Outcome) -> np.ndarray:
        parts = blocks(outcomes)
        found = [self.solve(bandit, self.view(bandit, part))[0] for part in parts]
        return np.concatenate(found)

    def batch(self, bandit: Bandit, outcomes: Outcome) -> dict[str, np.ndarray]:
        parts = []
        for part in blocks(outcomes):
            view = self.view(bandit, part)
            values, _, sums = self.solve(bandit, view)
            columns = {c.label: c.of(view) for c in controls(bandit, self.levels)}
            parts.append({self.label: values, self._sum: sums, **columns})
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    @property
    def _sum(self) -> str:
        return f"{self.label}: sum of penalties"

    def steadied_by(self, bandit: Bandit) -> dict[str, float]:
        known = known_means(bandit, self.levels)
        return {self._sum: 0.0, **{control.label: mean for control, mean in known.items()}}

    def saturating(self) -> frozenset[str]:
        # A plan goes elsewhere before it pays all that a rare, excellent future would charge.
        return frozenset({self._sum})


# ---- pilots

# Futures of a pilot beyond so many arms x periods are drawn anew whenever they are looked at.
_KEPT_CELLS = 2**22


# Futures number start, start + 1, ... of a pilot.
Draw = Callable[[int, int], Outcome]
Seen = TypeVar("Seen")
_OTHERS: dict[str, Penalty] = {"irs.ff": FF(), "irs.fh": FH(), "ts": TS()}


class Pilot(Generic[Seen]):
    """Futures on which a penalty is fitted, never the ones that its bound is then estimated on.

    `look` makes of a block of futures what the fit looks at, and `each` goes through the blocks:
    what they hold is kept as long as it takes little memory, and made anew each time otherwise.
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
        look: Callable[[Outcome], tuple[View, Seen]],
    ):
        self._size = min(block_size(bandit.num_arms, bandit.size), count)
        self._draw, self._look = draw, look
        self.count = -(-count // self._size) * self._size
        self._kept: list[Seen] | None = None
        if self.count * bandit.num_arms * bandit.size <= _KEPT_CELLS:
            self._kept = []
        steady = known_means(bandit, levels)
        columns: list[list[np.ndarray]] = []
        for outcomes in self._drawn():
            view, seen = look(outcomes)
            own = [_OTHERS[name].values(bandit, outcomes) - mean for name, mean in known.items()]
            columns.append(own + [control.of(view) - mean for control, mean in steady.items()])
            if self._kept is not None:
                self._kept.append(seen)
        self.columns = [np.concatenate(column) for column in zip(*columns, strict=True)]

    def _drawn(self) -> Iterator[Outcome]:
        return (self._draw(start, self._size) for start in range(0, self.count, self._size))

    def each(self) -> Iterator[Seen]:
        if self._kept is not None:
            return iter(self._kept)
        return (self._look(outcomes)[1] for outcomes in self._drawn())

    def intercept(self, more: list[np.ndarray]) -> np.ndarray:
        """[S]; more: further columns of mean zero."""
        each = [(c, c.std(), abs(c.mean()) * np.sqrt(self.count)) for c in self.columns + more]
        # As in `RunningMean`: columns of rounding, or of events too rare to be seen, help nobody.
        columns = [c / spread for c, spread, far in each if far < FARTHEST * spread]
        design = np.stack([np.ones(self.count), *columns], axis=1)
        return np.linalg.pinv(design, rcond=1e-4)[0]
