"""A batch of futures as leave-one-out penalties and their controls see it."""

from __future__ import annotations

import numpy as np

from irsppl.bandit import Bandit
from irsppl.beliefs import NormalScores, PathVariances
from irsppl.inner.leave_one_out import Arms, binary_arms, smooth_arms
from irsppl.outcomes import Outcome
from irsppl.penalties._moments import moments
from irsppl.penalties._schedule import horizons, pending_counts, plan_of, read
from irsppl.penalties.base import total_weight


def arms_of(bandit: Bandit, shares: tuple[float, ...] = (1.0,)) -> Arms:
    """The arms from now on; shares of the horizon at which one-armed values end."""
    found, plan = moments(bandit.belief), plan_of(bandit, shares)
    if found.binary:
        alpha, beta = tuple(found.mean * found.worth), tuple((1 - found.mean) * found.worth)
        return binary_arms(alpha, beta, plan, found.exact)
    start = (tuple(x) for x in (found.mean, found.sd, found.worth))
    abilities = (isinstance(bandit.belief, kind) for kind in (NormalScores, PathVariances))
    return smooth_arms(*start, plan, found.exact, *abilities)


class View:
    """A batch of futures with what several penalties and controls ask of it, computed once."""

    def __init__(self, bandit: Bandit, outcomes: Outcome, shares: tuple[float, ...] = (1.0,)):
        self.arms = arms_of(bandit, shares)
        self.futures, self.schedule = read(bandit, outcomes)
        self.rows = self.arms.rows(self.futures)
        self.horizon, self.expected = int(bandit.remaining), total_weight(bandit)
        self._pending = pending_counts(bandit)
        self._means = self.schedule.per_pull(self.futures.means)
        self._blend = _blend(bandit, shares, self.schedule.periods)
        self._cdfs: dict[float, np.ndarray] = {}
        self._weights: dict[float, np.ndarray] = {}

    def __len__(self) -> int:
        return len(self.futures)

    def cdfs(self, share: float) -> np.ndarray:
        """[S, K, G+1] given a share of the horizon's rewards of every arm, those in time."""
        if share not in self._cdfs:
            shown = np.maximum(1, np.rint(share * self.schedule.periods).astype(int))
            known = self._pending[None, :] + shown[:, None]
            known = np.minimum(known, self.futures.rewards.shape[2])
            if self.schedule.known is not None:
                known = np.minimum(known, self.schedule.known[:, :, -1])
            self._cdfs[share] = self.arms.cdfs(self.futures, known)
        return self._cdfs[share]

    def weights(self, share: float) -> np.ndarray:
        """[S, K, G]: where the best of the other arms lies, given that share of their rewards."""
        if share not in self._weights:
            self._weights[share] = self.arms.weights(self.cdfs(share))
        return self._weights[share]

    def charges(self, weights: np.ndarray) -> np.ndarray:
        """Z [S, K, T] of each pull; weights [S, K, shares, G]."""
        if self._blend is not None:
            weights = np.einsum("seb,saeg->sabg", self._blend, weights)
        charged = self.arms.charges(self.rows, weights)
        return self.schedule.per_pull(charged, only_new=True)

    def totals(self, counts: np.ndarray) -> np.ndarray:
        """[S, K, shares, G]: what each column is charged for the first counts [S, K] pulls."""
        found = self.arms.totals(self.rows, *self.schedule.spans(counts)).astype(np.float64)
        return found if self._blend is None else np.einsum("seb,sabg->saeg", self._blend, found)

    def solve(self, charged: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(values [S], counts [S, K], sum of all penalties [S]) for charges [S, K, T]."""
        values, counts = self.schedule.solve(self._means - charged)
        counted = np.arange(charged.shape[2])[None, None, :] < self.schedule.most()[:, :, None]
        return values, counts, np.sum(charged, axis=(1, 2), where=counted)


def _blend(bandit: Bandit, shares: tuple[float, ...], periods: np.ndarray) -> np.ndarray | None:
    """[S, shares, blocks]: the ends of a future's own horizon between those of the tables."""
    if not bandit.end.binds:
        return None
    nodes = horizons(bandit, shares)
    ends = periods[:, None] * np.asarray(shares)[None, :]
    each = [np.interp(ends, nodes, row) for row in np.eye(len(nodes))]
    return np.stack(each, axis=2)
