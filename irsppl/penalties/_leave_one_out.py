"""What leave-one-out penalties share: a bandit's arms, its futures on the host, their controls.

Let the (n+1)-th pull of arm a pay mu_hat_{a,n} - Z_a(n) with

    E[Z_a(n) | the first n rewards of a, all rewards of the other arms] = 0.

Whether a gets an (n+1)-th pull is decided, under any policy that does not look ahead, by the first
n rewards of a, by the other arms' rewards and by coin tosses; so the Z that a policy collects have
mean zero, and the best inner value is a bound. What a pull pays depends on (a, n) alone: the inner
problem is the allocation of IRS.V-Zero, which is the case Z = 0. See docs/leave-one-out.md.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from irsppl._checks import is_concrete
from irsppl.bandit import Bandit
from irsppl.beliefs._conjugate import Conjugate
from irsppl.beliefs._points import Points
from irsppl.inner.laws import expected_max
from irsppl.inner.leave_one_out import Arms, Futures, binary_arms, second_best_mean, smooth_arms
from irsppl.outcomes import Outcome
from irsppl.penalties._base import Inner, Penalty, future_means, host_future_means
from irsppl.penalties._moments import moments, normals, path_sds
from irsppl.penalties.ff import FF
from irsppl.penalties.fh import FH
from irsppl.penalties.ts import TS

# Tables of one-armed values may take so much memory.
_MOST_BYTES = 800e6


def check_leave_one_out(name: str, bandit: Bandit, blocks: int = 1) -> None:
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
    if bandit.pending:
        raise ValueError(
            f"{name} needs the rewards of all pulls, but {list(bandit.pending)} are pending: let "
            "them arrive first, or use 'irs.v-zero'"
        )
    found, horizon = moments(bandit.belief), int(bandit.remaining)
    each = horizon**2 / 2 * 40 if found.binary else horizon * 281 * 17
    priors = len(np.unique(np.stack([found.mean, found.worth]), axis=1).T)
    needed = 4.0 * each * priors * blocks
    if needed > _MOST_BYTES:
        raise ValueError(
            f"{name} would need {needed / 1e6:,.0f} MB of tables for {horizon} periods and "
            f"{priors} different priors, more than {_MOST_BYTES / 1e6:,.0f} MB; use 'irs.v-zero'"
        )


def arms_of(bandit: Bandit, ends: tuple[int, ...] | None = None) -> Arms:
    """The arms from now on, with tables up to each of `ends` (default: the end of play)."""
    horizon = int(bandit.remaining)
    ends = (horizon,) if ends is None else ends
    found = moments(bandit.belief)
    if found.binary:
        alpha, beta = tuple(found.mean * found.worth), tuple((1 - found.mean) * found.worth)
        return binary_arms(alpha, beta, horizon, ends, found.exact)
    start = (tuple(x) for x in (found.mean, found.sd, found.worth))
    kind = (found.exact, found.normal, found.own_variances)
    return smooth_arms(*start, horizon, ends, *kind)


def futures_of(bandit: Bandit, outcomes: Outcome) -> Futures:
    """A batch of futures with their posterior means."""
    horizon = int(bandit.remaining)
    means = host_future_means(bandit, outcomes)
    if means is None:
        means = np.asarray(_future_means(bandit, outcomes), np.float64)[:, :, : horizon + 1]
    rewards = np.asarray(outcomes.rewards, np.float64)[:, :, :horizon]
    sds = path_sds(bandit.belief, rewards, means)
    return Futures(rewards, means, sds, normals(bandit.belief, rewards, means, sds))


@eqx.filter_jit
def _future_means(bandit: Bandit, outcomes: Outcome) -> Array:
    return jax.vmap(lambda outcome: future_means(bandit, outcome))(outcomes)


class LeaveOneOut(Penalty):
    """A penalty that is solved on the host."""

    on_host: ClassVar[bool] = True
    bound_only: ClassVar[bool] = True
    traceable: ClassVar[bool] = False

    def check(self, bandit: Bandit) -> None:
        check_leave_one_out(self.name, bandit, self.blocks)

    @property
    @abc.abstractmethod
    def levels(self) -> tuple[float, ...]:
        """Shares of the horizon at which it looks at the other arms."""

    @abc.abstractmethod
    def solve(self, bandit: Bandit, view: View) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(values [S], counts [S, K], sum of all penalties [S]) of a batch of futures."""

    @property
    def blocks(self) -> int:
        """How many last pulls its tables plan for."""
        return 1

    def ends(self, bandit: Bandit) -> tuple[int, ...]:
        """These last pulls."""
        return (int(bandit.remaining),)

    def inner(self, bandit: Bandit, outcome: Outcome) -> Inner:
        if not is_concrete(bandit, outcome):
            raise ValueError(f"{self.name} is solved on the host: it cannot be traced by JAX")
        batch = jax.tree.map(lambda leaf: leaf[None], outcome)
        values, counts, _ = self.solve(bandit, View(bandit, batch, self.ends(bandit)))
        return Inner(values[0], np.argmax(counts[0]), counts[0])

    def values(self, bandit: Bandit, outcomes: Outcome) -> np.ndarray:
        return self.solve(bandit, View(bandit, outcomes, self.ends(bandit)))[0]

    def batch(self, bandit: Bandit, outcomes: Outcome) -> dict[str, np.ndarray]:
        view = View(bandit, outcomes, self.ends(bandit))
        values, _, sums = self.solve(bandit, view)
        columns = {c.label: c.of(view) for c in controls(self.levels)}
        return {self.label: values, self._sum: sums, **columns}

    @property
    def _sum(self) -> str:
        return f"{self.label}: sum of penalties"

    def steadied_by(self, bandit: Bandit) -> dict[str, float]:
        known = known_means(bandit, self.levels)
        return {self._sum: 0.0, **{control.label: mean for control, mean in known.items()}}


class View:
    """A batch of futures with what several penalties and controls ask of it, computed once."""

    def __init__(self, bandit: Bandit, outcomes: Outcome, ends: tuple[int, ...] | None = None):
        self.arms = arms_of(bandit, ends)
        self.futures = futures_of(bandit, outcomes)
        self._cdfs: dict[int, np.ndarray] = {}
        self._weights: dict[int, np.ndarray] = {}

    def cdfs(self, share: float) -> np.ndarray:
        """[S, K, G+1] given a share of the horizon's rewards of every arm."""
        known = self.arms.level(share)
        if known not in self._cdfs:
            self._cdfs[known] = self.arms.cdfs(self.futures, known)
        return self._cdfs[known]

    def weights(self, share: float) -> np.ndarray:
        """[S, K, G]: where the best of the other arms lies, given that share of their rewards."""
        known = self.arms.level(share)
        if known not in self._weights:
            self._weights[known] = self.arms.weights(self.cdfs(share))
        return self._weights[known]


# ---- controls of known mean; any bound may use them


class Control(Penalty):
    """A number of each future whose mean is known: no bound, but it steadies one."""

    on_host: ClassVar[bool] = True
    bound_only: ClassVar[bool] = True

    def inner(self, bandit: Bandit, outcome: Outcome) -> Inner:
        raise ValueError(f"{self.name} is a control variate, not a penalty")

    @abc.abstractmethod
    def of(self, view: View) -> np.ndarray:
        """[S]."""

    @abc.abstractmethod
    def mean(self, bandit: Bandit) -> float | None:
        """Its mean; None where it is not known."""

    def values(self, bandit: Bandit, outcomes: Outcome) -> np.ndarray:
        return self.of(View(bandit, outcomes))


class SecondBest(Control):
    """T times the second largest posterior mean after T - 1 rewards of every arm."""

    name: ClassVar[str] = "second best mean"

    def of(self, view: View) -> np.ndarray:
        horizon = view.arms.horizon
        last = view.futures.means[:, :, horizon - 1]
        return horizon * np.partition(last, -2, axis=1)[:, -2]

    def mean(self, bandit: Bandit) -> float | None:
        horizon = int(bandit.remaining)
        laws = bandit.belief.law(horizon - 1)
        if laws is None or bandit.num_arms < 2:
            return None
        return horizon * second_best_mean(
            lambda arms: expected_max([laws[a] for a in arms]), bandit.num_arms
        )


class LevelMax(Control):
    """T E[max_a mu_a | the first level x T rewards of every arm], on the grid of options.

    The CDFs of independent arms at fixed points are martingales, and so is their product.
    """

    name: ClassVar[str] = "best mean at a level"
    level: float = eqx.field(static=True)

    @property
    def label(self) -> str:
        return f"{self.name} of {self.level:g}"

    def of(self, view: View) -> np.ndarray:
        return _level_max(view.arms, view.cdfs(self.level))

    def mean(self, bandit: Bandit) -> float | None:
        arms = arms_of(bandit)
        return float(_level_max(arms, arms.prior_cdfs()[None])[0]) if arms.exact else None


def _level_max(arms: Arms, cdfs: np.ndarray) -> np.ndarray:
    return arms.horizon * ((1 - cdfs.prod(axis=1)[:, 1:-1]) @ np.diff(arms.lams))


class OneArmed(Control):
    """sum_a sum_g P(best of the others in cell g | level x T rewards of each) v(0; lam_g)."""

    name: ClassVar[str] = "one-armed values at a level"
    level: float = eqx.field(static=True)

    @property
    def label(self) -> str:
        return f"{self.name} of {self.level:g}"

    def of(self, view: View) -> np.ndarray:
        return _one_armed(view.arms, view.weights(self.level))

    def mean(self, bandit: Bandit) -> float | None:
        arms = arms_of(bandit)
        prior = arms.weights(arms.prior_cdfs()[None])
        return float(_one_armed(arms, prior)[0]) if arms.exact else None


def _one_armed(arms: Arms, weights: np.ndarray) -> np.ndarray:
    return np.tensordot(weights, arms.starts[:, : len(arms.lams)], 2)


def controls(levels: tuple[float, ...]) -> list[Control]:
    found: list[Control] = [SecondBest()]
    for level in levels:
        found += [LevelMax(level), OneArmed(level)]
    return found


def known_means(bandit: Bandit, levels: tuple[float, ...]) -> dict[Control, float]:
    """The controls whose means are known for this bandit, with them."""
    means = {control: control.mean(bandit) for control in controls(levels)}
    return {control: mean for control, mean in means.items() if mean is not None}


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
        ends: tuple[int, ...] | None = None,
    ):
        outcomes = draw(0, count)
        self.view = View(bandit, outcomes, ends)
        columns = [_OTHERS[name].values(bandit, outcomes) - mean for name, mean in known.items()]
        steady = known_means(bandit, levels).items()
        self.columns = columns + [control.of(self.view) - mean for control, mean in steady]

    def intercept(self, more: list[np.ndarray]) -> np.ndarray:
        """[S]; more: further columns of mean zero."""
        columns = [c / spread for c in self.columns + more if (spread := c.std()) > 0]
        design = np.stack([np.ones(len(self.view.futures)), *columns], axis=1)
        return np.linalg.pinv(design, rcond=1e-4)[0]
