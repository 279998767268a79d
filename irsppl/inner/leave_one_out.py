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

import abc
import dataclasses
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import special

CELLS = 40
# Weights below this are dropped, which saves most of the work; any weights give a bound.
_LEAST_WEIGHT = 1e-5
# Up to this horizon tables are kept in float64 and nothing is dropped.
_SHORT = 64
_FINE = 4001


@dataclasses.dataclass(frozen=True)
class Futures:
    """A batch of futures on the host, float64.

    rewards [S, K, T]; means [S, K, T+1]: posterior means after 0 .. T rewards; sds [S, K, T+1] or
    [1, K, T+1]: posterior standard deviations (None for binary rewards); normals [S, K, T]: each
    reward as a number that is standard normal given the arm's earlier ones, where there is one.
    """

    rewards: np.ndarray
    means: np.ndarray
    sds: np.ndarray | None = None
    normals: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.rewards)


class Arms(abc.ABC):
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

    @abc.abstractmethod
    def prior_cdfs(self) -> np.ndarray:
        """[K, G+1]: P(mu_a <= edge)."""

    @abc.abstractmethod
    def cdfs(self, futures: Futures, known: int) -> np.ndarray:
        """[S, K, G+1]: the same given the first `known` rewards of each arm."""

    @abc.abstractmethod
    def payoffs(self, futures: Futures, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(cumulative payoffs [S, K, T+1], sum of all penalties [S]); weights [S, K, C]."""

    @abc.abstractmethod
    def totals(self, futures: Futures, counts: np.ndarray) -> np.ndarray:
        """[S, K, C]: each column's penalties summed over the first counts [S, K] pulls."""

    @abc.abstractmethod
    def hinge_paths(self, futures: Futures, last: int, options: np.ndarray) -> np.ndarray:
        """[S, kinds, K, last + 1]: E[(mu_hat_{a,last} - option)+ | a's first 0 .. last rewards].

        options [S, K, kinds]: numbers that depend on the other arms only. Exact arms only.
        """

    def hinges(self, futures: Futures, last: int) -> np.ndarray:
        """[S, 2, K, last + 1]: `hinge_paths` against the best and second best of the other arms.

        The others' means are those after `last` rewards of each; with two arms there is no second.
        """
        return self.hinge_paths(futures, last, best_others(futures.means[:, :, last]))

    def weights(self, cdfs: np.ndarray) -> np.ndarray:
        """[S, K, G]: P(best mean of the other arms in each cell)."""
        from irsppl.inner.cpu.leave_one_out import leave_out_products

        return np.diff(leave_out_products(cdfs), axis=2)

    def solve(
        self, futures: Futures, weights: np.ndarray, more: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(values [S], counts [S, K], sum of all penalties [S]); more: other ones [S, K, T]."""
        from irsppl.inner.cpu.leave_one_out import solve_payoffs

        payoffs, sums = self.payoffs(futures, self._trimmed(weights))
        if more is not None:
            payoffs[:, :, 1:] -= np.cumsum(more, axis=2)
            sums += more.sum(axis=(1, 2))
        values, counts = solve_payoffs(payoffs)
        return values, counts, sums

    @property
    def dtype(self) -> type:
        """Precision of the tables."""
        return np.float64 if self.horizon <= _SHORT else np.float32

    def _trimmed(self, weights: np.ndarray) -> np.ndarray:
        """Weights for the kernels, the negligible ones zero."""
        if self.horizon > _SHORT:
            least = _LEAST_WEIGHT * np.abs(weights).sum(axis=-1, keepdims=True)
            weights = np.where(np.abs(weights) < least, 0, weights)
        return weights.astype(self.dtype)


def best_others(means: np.ndarray) -> np.ndarray:
    """[S, K] -> [S, K, 2]: the best and the second best of the other arms (alike if just one)."""
    order = np.argsort(-means, axis=1, kind="stable")
    ranked = np.take_along_axis(means, order, axis=1)
    if means.shape[1] == 2:
        ranked = np.concatenate([ranked, ranked[:, -1:]], axis=1)
    first, second, third = ranked[:, 0, None], ranked[:, 1, None], ranked[:, 2, None]
    arms = np.arange(means.shape[1])[None, :]
    best = np.where(order[:, :1] == arms, second, first)
    among = (order[:, :1] == arms) | (order[:, 1:2] == arms)
    runner = np.where(among, third, second)
    if means.shape[1] == 2:
        runner = best
    return np.stack([best, runner], axis=2)


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


def options(
    mean: np.ndarray, sd: np.ndarray, limits: tuple[float, float] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(inner edges [G-1], options lam [G]) for arms whose means have these moments [K]."""

    def cdf(x: np.ndarray) -> np.ndarray:
        return special.ndtr((x[None, :] - mean[:, None]) / sd[:, None])

    low, high = limits or (np.min(mean - 6 * sd), np.max(mean + 6 * sd))
    inner = _grid(cdf, low, high)
    first, last = 2 * inner[0] - inner[1], 2 * inner[-1] - inner[-2]
    rims = np.concatenate([[first], inner, [last]])
    return inner, (rims[1:] + rims[:-1]) / 2


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
        made = [binary_slopes(a, b, horizon, lams, stops, self.dtype) for a, b in self._priors]
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

        return binary_payoffs(futures.rewards, futures.means, self._tables, self._table_of, weights)

    def totals(self, futures: Futures, counts: np.ndarray) -> np.ndarray:
        from irsppl.inner.cpu.leave_one_out import binary_totals

        return binary_totals(futures.rewards, futures.means, self._tables, self._table_of, counts)

    @lru_cache(maxsize=4)  # noqa: B019
    def _hinge_tables(self, last: int) -> np.ndarray:
        from irsppl.inner.cpu.one_armed import binary_hinges

        return np.stack(
            [binary_hinges(a, b, last, self.edges, self.dtype) for a, b in self._priors]
        )

    def hinge_paths(self, futures: Futures, last: int, options: np.ndarray) -> np.ndarray:
        from irsppl.inner.cpu.leave_one_out import binary_hinge_paths

        tables = self._hinge_tables(last)
        return binary_hinge_paths(
            futures.rewards, tables, self._table_of, self.edges, options, last
        )


@lru_cache(maxsize=4)
def binary_arms(
    alpha: tuple[float, ...],
    beta: tuple[float, ...],
    horizon: int,
    ends: tuple[int, ...],
    exact: bool,
) -> BinaryArms:
    return BinaryArms(np.asarray(alpha), np.asarray(beta), horizon, ends, exact)


class SmoothArms(Arms):
    """Any rewards: one-armed values as if posterior means were Gaussian.

    mean, sd [K]: of the arms' unknown means; worth [K]: rewards that the prior is worth, so that
    after n more of them the posterior variance is about noise^2 / (worth + n). gaussian: so it is.
    normal: futures bring standard normal innovations, and penalties are whole changes of v;
    otherwise they are of first order in the change of the posterior mean, and of second order too
    where `own_variances` says that `Futures.sds` are the belief's own.
    """

    def __init__(
        self,
        mean: np.ndarray,
        sd: np.ndarray,
        worth: np.ndarray,
        horizon: int,
        ends: tuple[int, ...],
        gaussian: bool,
        normal: bool,
        own_variances: bool,
    ):
        from irsppl.inner.cpu.one_armed import REACH, gaussian_changes, gaussian_slopes

        self.mean, self.sd, self.worth = mean, sd, worth
        self.horizon, self.ends, self.exact = horizon, ends, gaussian
        self._normal, self._own_variances = normal, own_variances
        inner, self.lams = options(mean, sd)
        self.edges = np.concatenate([[-np.inf], inner, [np.inf]])
        worths, table_of = np.unique(worth, return_inverse=True)
        self._table_of = table_of.reshape(-1).astype(np.int64)
        make = gaussian_changes if normal else gaussian_slopes
        made = [[make(w, horizon, end, self.dtype) for end in ends] for w in worths]
        self._steps = np.array([row[0][1] for row in made])
        self._tables = np.stack([np.stack([table for table, _, _ in row]) for row in made])
        self._noise = sd * np.sqrt(worth)
        y = (mean[:, None] - self.lams[None, :]) / sd[:, None]
        starts = np.empty((len(mean), len(ends), len(self.lams)))
        for a, p in enumerate(self._table_of):
            for e in range(len(ends)):
                grid = np.linspace(-REACH, REACH, len(made[p][e][2]))
                starts[a, e] = self._noise[a] * np.interp(y[a], grid, made[p][e][2])
        self.starts = starts.reshape(len(mean), -1)

    def _prior(self, x: np.ndarray) -> np.ndarray:
        return special.ndtr((x[None, :] - self.mean[:, None]) / self.sd[:, None])

    def prior_cdfs(self) -> np.ndarray:
        return self._prior(self.edges)

    def cdfs(self, futures: Futures, known: int) -> np.ndarray:
        assert futures.sds is not None
        mean, sd = futures.means[:, :, known, None], futures.sds[:, :, known, None]
        return special.ndtr((self.edges[None, None, :] - mean) / sd)

    def hinge_paths(self, futures: Futures, last: int, options: np.ndarray) -> np.ndarray:
        assert futures.sds is not None
        means = futures.means[:, None, :, : last + 1]
        variance = futures.sds[:, None, :, : last + 1] ** 2
        sd = np.sqrt(np.maximum(variance - variance[..., -1:], 0))
        apart = means - np.moveaxis(options, 2, 1)[..., None]
        z = np.clip(apart / np.where(sd > 0, sd, 1), -38, 38)
        density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
        return np.where(sd > 0, apart * special.ndtr(z) + sd * density, np.maximum(apart, 0))

    def _paths(self, futures: Futures) -> tuple[np.ndarray, ...]:
        """Means, deviations, and the innovations as two neighbouring entries of a table's row."""
        from irsppl.inner.cpu.one_armed import KNOTS

        means, sds = futures.means, futures.sds
        assert sds is not None
        n = np.arange(self.horizon)[None, None, :]
        noise = sds[:, :, :-1] * np.sqrt(self.worth[None, :, None] + n)
        if self._normal:
            assert futures.normals is not None
            at = (futures.normals - KNOTS[0]) / (KNOTS[1] - KNOTS[0])
            index = np.clip(at, 0, len(KNOTS) - 2).astype(np.int16)
            up = at - index
            return means, sds, index, noise * (1 - up), noise * up
        change = np.diff(means, axis=2)
        if self._own_variances:
            # Of mean zero, because mu_hat^2 + variance is a martingale.
            square = (change**2 + np.diff(sds**2, axis=2)) / noise
        else:
            square = np.zeros_like(change)
        return means, sds, np.zeros(change.shape, np.int16), change, square

    def payoffs(self, futures: Futures, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        from irsppl.inner.cpu.leave_one_out import smooth_payoffs

        return self._call(smooth_payoffs, futures, weights)

    def totals(self, futures: Futures, counts: np.ndarray) -> np.ndarray:
        from irsppl.inner.cpu.leave_one_out import smooth_totals

        return self._call(smooth_totals, futures, counts)

    def _call(self, kernel: Callable[..., Any], futures: Futures, last: np.ndarray) -> Any:
        from irsppl.inner.cpu.one_armed import REACH

        grid = (self._tables, self._table_of, self.lams, self._steps, REACH)
        return kernel(self._paths(futures), *grid, last)


@lru_cache(maxsize=4)
def smooth_arms(
    mean: tuple[float, ...],
    sd: tuple[float, ...],
    worth: tuple[float, ...],
    horizon: int,
    ends: tuple[int, ...],
    gaussian: bool,
    normal: bool,
    own_variances: bool,
) -> SmoothArms:
    kind = (gaussian, normal, own_variances)
    return SmoothArms(np.asarray(mean), np.asarray(sd), np.asarray(worth), horizon, ends, *kind)


def second_best_mean(expected_max: Callable[[list[int]], float], num_arms: int) -> float:
    """E of the second largest of independent numbers, from E max over subsets of them.

    sum_a max over all but a counts the largest K - 1 times and the second once.
    """
    arms = list(range(num_arms))
    without = sum(expected_max([b for b in arms if b != a]) for a in arms)
    return without - (num_arms - 1) * expected_max(arms)
