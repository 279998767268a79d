"""Numbers of a future whose means are known: no bounds, but any sampled bound may use them."""

from __future__ import annotations

import abc
from typing import ClassVar

import equinox as eqx
import numpy as np

from irsppl.bandit import Bandit
from irsppl.beliefs import ExactLaws
from irsppl.inner.laws import expected_best
from irsppl.inner.leave_one_out import Arms, second_best_mean
from irsppl.outcomes import Outcome
from irsppl.penalties._view import View, arms_of
from irsppl.penalties.base import ANYWHERE, Column, total_weight


class Control(Column):
    """A number of each future whose mean is known: no bound, but it steadies one."""

    host_needs: ClassVar[frozenset[str] | None] = ANYWHERE
    name: ClassVar[str]

    @property
    def label(self) -> str:
        return self.name

    @abc.abstractmethod
    def of(self, view: View) -> np.ndarray:
        """[S]."""

    @abc.abstractmethod
    def mean(self, bandit: Bandit) -> float | None:
        """Its mean; None where it is not known."""

    def host_values(self, bandit: Bandit, outcomes: Outcome) -> np.ndarray:
        return self.of(View(bandit, outcomes))


class SecondBest(Control):
    """T times the second largest posterior mean after T - 1 rewards of every arm."""

    name: ClassVar[str] = "second best mean"

    def of(self, view: View) -> np.ndarray:
        last = view.futures.means[:, :, view.horizon - 1]
        return view.horizon * np.partition(last, -2, axis=1)[:, -2]

    def mean(self, bandit: Bandit) -> float | None:
        horizon = int(bandit.remaining)
        if bandit.pending or bandit.constraints - {"budget"}:
            return None  # a row holds other rewards first
        belief = bandit.belief
        laws = belief.law(horizon - 1) if isinstance(belief, ExactLaws) else None
        if laws is None or bandit.num_arms < 2:
            return None
        return horizon * second_best_mean(
            lambda arms: expected_best([laws[a] for a in arms]), bandit.num_arms
        )


class AtLevel(Control):
    """One that looks at the first level x T rewards of every arm."""

    level: float = eqx.field(static=True)

    @property
    def label(self) -> str:
        return f"{self.name} of {self.level:g}"


class LevelMax(AtLevel):
    """T E[max_a mu_a | the first level x T rewards of every arm], on the grid of options.

    The CDFs of independent arms at fixed points are martingales, and so is their product; when it
    is stopped depends on delays and the end of play, which know nothing of rewards.
    """

    name: ClassVar[str] = "best mean at a level"

    def of(self, view: View) -> np.ndarray:
        return view.schedule.periods * _level_max(view.arms, view.cdfs(self.level))

    def mean(self, bandit: Bandit) -> float | None:
        arms = arms_of(bandit)
        if not arms.exact:
            return None
        return total_weight(bandit) * float(_level_max(arms, arms.prior_cdfs()[None])[0])


def _level_max(arms: Arms, cdfs: np.ndarray) -> np.ndarray:
    return (1 - cdfs.prod(axis=1)[:, 1:-1]) @ np.diff(arms.lams)


class OneArmed(AtLevel):
    """sum_a sum_g P(best of the others in cell g | level x T rewards of each) v(0; lam_g)."""

    name: ClassVar[str] = "one-armed values at a level"

    def of(self, view: View) -> np.ndarray:
        return _one_armed(view.arms, view.weights(self.level))

    def mean(self, bandit: Bandit) -> float | None:
        arms = arms_of(bandit)
        prior = arms.weights(arms.prior_cdfs()[None])
        return float(_one_armed(arms, prior)[0]) if arms.exact else None


def _one_armed(arms: Arms, weights: np.ndarray) -> np.ndarray:
    whole = int(np.argmax(arms.plan.ends[0]))  # the block that plans to the end of play
    return np.tensordot(weights, arms.starts[:, whole], 2)


class Length(Control):
    """How many periods a future plays, where the horizon has a law."""

    name: ClassVar[str] = "periods played"

    def of(self, view: View) -> np.ndarray:
        return view.schedule.periods.astype(np.float64)

    def mean(self, bandit: Bandit) -> float | None:
        return total_weight(bandit) if bandit.end.binds else None


def controls(bandit: Bandit, levels: tuple[float, ...]) -> list[Control]:
    if not bandit.belief.is_independent:  # their means are products over arms
        return []
    found: list[Control] = [SecondBest(), Length()]
    for level in levels:
        found += [LevelMax(level), OneArmed(level)]
    return found


def known_means(bandit: Bandit, levels: tuple[float, ...]) -> dict[Control, float]:
    """The controls whose means are known for this bandit, with them."""
    means = {control: control.mean(bandit) for control in controls(bandit, levels)}
    return {control: mean for control, mean in means.items() if mean is not None}
