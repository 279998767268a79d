"""Under which constraints leave-one-out penalties are charged: rows of rewards, and who may pull.

An arm's *row* holds those of its rewards that some policy could know by the last decision, in the
order of the pulls, pending ones first; behind them, to fill the row, the others. Pull n of an arm
then finds `known` rewards of its row, and shows the next one if that comes in time. What it pays
depends on its arm and on n alone, so the inner problem is an allocation, or a knapsack.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irsppl.bandit import Bandit
from irsppl.beliefs import Conjugate
from irsppl.inner.leave_one_out import Futures, Plan
from irsppl.outcomes import Outcome
from irsppl.penalties._moments import normals, path_sds
from irsppl.penalties.arrivals import at_each, in_time, pending_of, periods_of
from irsppl.penalties.base import natural_means

# Where the end of play has a law: horizons that one-armed values are computed for.
_NODES = 6


def pending_counts(bandit: Bandit) -> np.ndarray:
    """[K]."""
    return np.asarray(pending_of(bandit), int)


def in_order(bandit: Bandit) -> bool:
    """Whether rows are just the rewards of the pulls to come, T of them."""
    return not bandit.constraints - {"budget"} and not bandit.pending


def horizons(bandit: Bandit, shares: tuple[float, ...]) -> np.ndarray:
    """[blocks]: numbers of periods that one-armed values plan for."""
    periods = int(bandit.remaining)
    weights = bandit.period_weights()
    if weights is None:
        return np.maximum(1, np.rint(np.asarray(shares) * periods).astype(int))
    likely = np.flatnonzero(weights < 0.95 * weights[0])
    low = max(1.0, min(shares) * (likely[0] if len(likely) else periods))
    return np.unique(np.rint(np.geomspace(low, periods, _NODES)).astype(int))


def plan_of(bandit: Bandit, shares: tuple[float, ...] = (1.0,)) -> Plan:
    """Rows, ends and units; shares of the horizon at which one-armed values end."""
    periods, pending = int(bandit.remaining), pending_counts(bandit)
    units = bandit.access.units(bandit)
    ends = []
    for horizon in horizons(bandit, shares):
        shown = bandit.arrivals.shown(bandit.num_arms, int(horizon))
        ends.append(np.ceil(pending + shown / units + 1 - 1e-9).astype(int))
    rows = periods + int(pending.max())
    each = np.minimum(np.stack(ends, axis=1), rows)
    return Plan(
        rows,
        tuple(tuple(int(end) for end in row) for row in each),
        tuple(float(unit) for unit in units),
        bandit.access.may_stop,
    )


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Who may pull how often, and what a pull finds.

    periods [S]: how long each future goes on; known [S, K, T+1]: rewards of the row that can be
    known before pull n (None where that is n); limits [K]: pulls of each arm that are possible.
    """

    bandit: Bandit
    periods: np.ndarray
    known: np.ndarray | None
    limits: np.ndarray

    def per_pull(self, rows: np.ndarray, only_new: bool = False) -> np.ndarray:
        """[..., K, T] of each pull, from numbers [..., K, >= T] along the rows; axes S first.

        only_new: zero where the pull's own reward does not come in time.
        """
        if self.known is None:
            return rows[..., : int(self.limits.max())]
        before, after = self.known[..., :-1], self.known[..., 1:]
        axes = tuple(range(1, rows.ndim - 2))
        at = np.expand_dims(np.minimum(before, rows.shape[-1] - 1), axes)
        found = np.take_along_axis(rows, at, axis=-1)
        return np.where(np.expand_dims(after > before, axes), found, 0) if only_new else found

    def spans(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(first, last) [S, K]: the row's rewards that the first counts [S, K] pulls show."""
        if self.known is None:
            return np.zeros_like(counts), counts
        last = np.take_along_axis(self.known, counts[:, :, None].astype(int), axis=2)[..., 0]
        return self.known[:, :, 0], last

    def most(self) -> np.ndarray:
        """[S, K]: pulls of each arm alone."""
        return np.minimum(self.periods[:, None], self.limits[None, :])

    def solve(self, pays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(values [S], counts [S, K]) of the best plan; pays [S, K, T] by single pulls."""
        payoffs = np.zeros((*pays.shape[:2], pays.shape[2] + 1))
        np.cumsum(pays, axis=2, out=payoffs[:, :, 1:])
        return self.bandit.access.group_plans(self.bandit, payoffs, self.periods)


def read(bandit: Bandit, outcomes: Outcome) -> tuple[Futures, Schedule]:
    """A batch of futures as rows, with their schedule."""
    periods, count = int(bandit.remaining), len(outcomes.rewards)
    width = periods + int(pending_counts(bandit).max())
    belief = bandit.belief
    natural = belief.natural_state() if isinstance(belief, Conjugate) else None
    known, lengths, path = None, np.full(count, periods), np.empty(0)
    if natural is not None and in_order(bandit):
        rewards = np.asarray(outcomes.rewards)[:, :, :width]
    else:
        found = _rows(bandit, outcomes, natural is None)
        rewards, known, lengths, path = map(np.asarray, found)
        rewards, lengths = rewards[:, :, :width], lengths.astype(int)
        known = known[:, :, : periods + 1]
        if in_order(bandit):
            known = None
    rewards = rewards.astype(np.float64)
    if natural is not None:
        means = natural_means(natural, rewards)
    else:
        means = path[:, :, : width + 1].astype(np.float64)
    sds = path_sds(bandit.belief, rewards, means)
    futures = Futures(rewards, means, sds, normals(bandit.belief, rewards, means))
    limits = np.asarray(bandit.access.most(bandit)).astype(int)
    return futures, Schedule(bandit, lengths, known, limits)


@eqx.filter_jit
def _rows(bandit: Bandit, outcomes: Outcome, with_means: bool) -> tuple[Array, ...]:
    """(rewards of the rows, how many of them pull n finds, periods, posterior means along them)."""

    def one(outcome: Outcome) -> tuple[Array, ...]:
        periods = periods_of(bandit, outcome)
        rewards, known = in_time(bandit, outcome, periods)
        pending = bandit.pending_counts
        if pending is not None:  # pulls to come start behind the pending ones
            known = at_each(known, jnp.arange(known.shape[1])[None, :] + pending[:, None])
        belief = outcome.belief or bandit.belief
        path = belief.along(rewards).own_means() if with_means else jnp.zeros(0)
        return rewards, known, periods, path

    return jax.vmap(one)(outcomes)
