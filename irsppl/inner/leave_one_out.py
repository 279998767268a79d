"""Arms as leave-one-out penalties see them: tables of one-armed values over a grid of options.

For each arm the other arms are summed up by the law of their best mean, given the first M rewards
of each: weights on cells of a grid of known options lam. Both kinds of arms answer alike:

- `BinaryArms`: rewards 0 or 1, Beta beliefs (exact, or matched to two moments of another belief);
- `SmoothArms`: any other rewards, one-armed values of a Gaussian in units of its noise.

A column is an option lam_g together with a last pull `end`: columns [0, G) belong to ends[0], the
next G to ends[1], and so on. What the tables hold is a matter of tightness: any numbers would give
a bound, because they multiply innovations of mean zero.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy import special

CELLS = 40
# Weights below this are dropped, which saves most of the work; any weights give a bound.
_LEAST_WEIGHT = 1e-5
_FINE = 4001


@dataclasses.dataclass(frozen=True)
class Futures:
    """A batch of futures on the host, float64.

    rewards [S, K, T]; means [S, K, T+1]: posterior means after 0 .. T rewards; sds [S, K, T+1] or
    [1, K, T+1]: posterior standard deviations (None for binary rewards).
    """

    rewards: np.ndarray
    means: np.ndarray
    sds: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.rewards)


class Arms:
    """What both kinds share."""

    horizon: int
    ends: tuple[int, ...]
    edges: np.ndarray  # [G+1], the outermost may be infinite
    lams: np.ndarray  # [G]
    starts: np.ndarray  # [K, C]: one-armed values of the first pull
    exact: bool  # the weights are those of the belief itself, so that their means are known

    @property
    def columns(self) -> int:
        return len(self.ends) * len(self.lams)

    def level(self, share: float) -> int:
        """How many rewards of an arm are a share of the horizon."""
        return min(max(1, round(share * self.horizon)), self.horizon)

    def prior_cdfs(self) -> np.ndarray:
        """[K, G+1]: P(mu_a <= edge)."""
        raise NotImplementedError

    def cdfs(self, futures: Futures, known: int) -> np.ndarray:
        """[S, K, G+1]: the same given the first `known` rewards of each arm."""
        raise NotImplementedError

    def payoffs(self, futures: Futures, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(cumulative payoffs [S, K, T+1], sum of all penalties [S]); weights [S, K, C]."""
        raise NotImplementedError

    def totals(self, futures: Futures, counts: np.ndarray) -> np.ndarray:
        """[S, K, C]: each column's penalties summed over the first counts [S, K] pulls."""
        raise NotImplementedError

    def weights(self, cdfs: np.ndarray) -> np.ndarray:
        """[S, K, G]: P(best mean of the other arms in each cell)."""
        from irsppl.inner.cpu.leave_one_out import leave_out_products

        return np.diff(leave_out_products(cdfs), axis=2)

    def solve(
        self, futures: Futures, weights: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(values [S], counts [S, K], sum of all penalties [S])."""
        from irsppl.inner.cpu.leave_one_out import solve_payoffs

        payoffs, sums = self.payoffs(futures, trimmed(weights))
        values, counts = solve_payoffs(payoffs)
        return values, counts, sums


def trimmed(weights: np.ndarray) -> np.ndarray:
    """Weights for the kernels: float32, the negligible ones zero."""
    least = _LEAST_WEIGHT * np.abs(weights).sum(axis=-1, keepdims=True)
    return np.where(np.abs(weights) < least, 0, weights).astype(np.float32)


def _grid(cdf: Callable[[np.ndarray], np.ndarray], low: float, high: float) -> np.ndarray:
    """Inner edges [G-1] of cells: half of them even, half as likely, for the best of the others.

    cdf: [X] -> [K, X], the arms' prior laws; low, high: an interval that holds nearly all.
    """
    from irsppl.inner.cpu.leave_one_out import leave_out_products

    x = np.linspace(low, high, _FINE)
    best = leave_out_products(cdf(x)[None])[0].mean(axis=0)
    inside = np.flatnonzero((best > 1e-4) & (best < 1 - 1e-4))
    if len(inside) < 2:
        inside = np.array([0, _FINE - 1])
    even = np.clip((x - x[inside[0]]) / (x[inside[-1]] - x[inside[0]]), 0, 1)
    blend = np.maximum.accumulate(0.5 * best + 0.5 * even)
    keep = np.concatenate([[True], np.diff(blend) > 0])
    return np.interp(np.arange(1, CELLS) / CELLS, blend[keep], x[keep])


class BinaryArms(Arms):
    """Rewards 0 or 1; each arm's belief is, or is matched by, Beta(alpha_a, beta_a)."""

    def __init__(
        self, alpha: np.ndarray, beta: np.ndarray, horizon: int, ends: tuple[int, ...], exact: bool
    ):
        from irsppl.inner.cpu.one_armed import binary_slopes

        self.alpha, self.beta, self.horizon, self.ends = alpha, beta, horizon, ends
        self.exact = exact
        inner = _grid(lambda x: special.betainc(alpha[:, None], beta[:, None], x[None, :]), 0, 1)
        self.edges = np.concatenate([[0.0], inner, [1.0]])
        self.lams = (self.edges[1:] + self.edges[:-1]) / 2
        pairs = np.stack([alpha, beta], axis=1)
        self._priors, table_of = np.unique(pairs, axis=0, return_inverse=True)
        self._table_of = table_of.reshape(-1).astype(np.int64)
        lams, stops = np.tile(self.lams, len(ends)), np.repeat(ends, CELLS)
        made = [binary_slopes(a, b, horizon, lams, stops) for a, b in self._priors]
        self._tables = np.stack([slopes for slopes, _ in made])
        self.starts = np.stack([start for _, start in made])[self._table_of]

    def prior_cdfs(self) -> np.ndarray:
        return special.betainc(self.alpha[:, None], self.beta[:, None], self.edges[None, :])

    @lru_cache(maxsize=16)  # noqa: B019  arms live as long as the cache that holds them
    def _level(self, known: int) -> np.ndarray:
        """[P, known + 1, G+1]: the laws after each number of successes."""
        wins = np.arange(known + 1)[None, :, None]
        alpha, beta = self._priors[:, 0, None, None], self._priors[:, 1, None, None]
        return special.betainc(alpha + wins, beta + known - wins, self.edges[None, None, :])

    def cdfs(self, futures: Futures, known: int) -> np.ndarray:
        wins = futures.rewards[:, :, :known].sum(axis=2).astype(np.int64)
        return self._level(known)[self._table_of[None, :], wins]

    def payoffs(self, futures: Futures, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        from irsppl.inner.cpu.leave_one_out import binary_payoffs

        return binary_payoffs(
            futures.rewards, futures.means, self._tables, self._table_of, weights
        )

    def totals(self, futures: Futures, counts: np.ndarray) -> np.ndarray:
        from irsppl.inner.cpu.leave_one_out import binary_totals

        return binary_totals(futures.rewards, futures.means, self._tables, self._table_of, counts)


@lru_cache(maxsize=4)
def binary_arms(
    alpha: tuple[float, ...],
    beta: tuple[float, ...],
    horizon: int,
    ends: tuple[int, ...],
    exact: bool,
) -> BinaryArms:
    return BinaryArms(np.asarray(alpha), np.asarray(beta), horizon, ends, exact)


def second_best_mean(expected_max: Callable[[list[int]], float], num_arms: int) -> float:
    """E of the second largest of independent numbers, from E max over subsets of them.

    sum_a max over all but a counts the largest K - 1 times and the second once.
    """
    arms = list(range(num_arms))
    without = sum(expected_max([b for b in arms if b != a]) for a in arms)
    return without - (num_arms - 1) * expected_max(arms)
