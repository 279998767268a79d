"""Arms as leave-one-out penalties see them: tables of one-armed values over a grid of options.

For each arm the other arms are summed up by the law of their best mean, given the first M rewards
of each: weights on cells of a grid of known options lam. Both kinds of arms answer alike:

- `BinaryArms`: rewards 0 or 1, Beta beliefs (exact, or matched to two moments of another belief);
- `SmoothArms`: any other rewards, one-armed values of a Gaussian in units of its noise.

Tables have blocks of G columns, one for each option lam_g; each block ends at another last pull.
What the tables hold is a matter of tightness: any numbers would give a bound, because they multiply
innovations of mean zero.

Under a budget arms are compared by what they pay for what they take: an option is a rate, and a
pull of arm a must be worth more than lam x units[a].
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import scipy

CELLS = 40
# Weights below this are dropped, which saves most of the work; any weights give a bound.
_LEAST_WEIGHT = 1e-5
# Up to this horizon tables are kept in float64 and nothing is dropped.
_SHORT = 64
_FINE = 4001


@dataclasses.dataclass(frozen=True)
class Plan:
    """How far arms are planned for.

    rows: length of an arm's row of rewards; ends [K][blocks]: how many rewards of the row play can
    show, where one-armed values end; units [K]: what a pull takes, 1 without a budget; may_stop: no
    option is worse than nothing.
    """

    rows: int
    ends: tuple[tuple[int, ...], ...]
    units: tuple[float, ...]
    may_stop: bool = False

    @property
    def blocks(self) -> int:
        return len(self.ends[0])


@dataclasses.dataclass(frozen=True)
class Futures:
    """A batch of futures on the host, float64; a row is an arm's rewards, those in time first.

    rewards [S, K, W]; means [S, K, W+1]: posterior means after 0 .. W rewards; sds [S, K, W+1] or
    [1, K, W+1]: posterior standard deviations (None for binary rewards); normals [S, K, W]: each
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

    plan: Plan
    units: np.ndarray  # [K]
    edges: np.ndarray  # [G+1], the outermost may be infinite
    lams: np.ndarray  # [G]
    starts: np.ndarray  # [K, blocks, G]: one-armed values of the first pull
    exact: bool  # the weights are those of the belief itself, so that their means are known

    @abc.abstractmethod
    def prior_cdfs(self) -> np.ndarray:
        """[K, G+1]: P(mu_a <= edge x unit)."""

    @abc.abstractmethod
    def cdfs(self, futures: Futures, known: np.ndarray) -> np.ndarray:
        """[S, K, G+1]: the same given the first known [S, K] rewards of each arm's row."""

    @abc.abstractmethod
    def rows(self, futures: Futures) -> Any:
        """The futures as `charges` and `totals` read them."""

    @abc.abstractmethod
    def hinge_paths(self, futures: Futures, last: int, options: np.ndarray) -> np.ndarray:
        """[S, kinds, K, last + 1]: E[(mu_hat_{a,last} - option)+ | a's first 0 .. last rewards].

        options [S, K, kinds]: numbers that depend on the other arms only. Exact arms only.
        """

    def hinges(self, futures: Futures, last: int) -> np.ndarray:
        """[S, 2, K, last + 1]: `hinge_paths` against the best and second best of the other arms.

        The others' means are those after `last` rewards of each; with two arms there is no second.
        """
        rates = best_others(futures.means[:, :, last] / self.units[None, :])
        if self.plan.may_stop:
            rates = np.maximum(rates, 0)
        return self.hinge_paths(futures, last, rates * self.units[None, :, None])

    def weights(self, cdfs: np.ndarray) -> np.ndarray:
        """[S, K, G]: P(best rate of the other arms in each cell)."""
        return np.diff(leave_out_products(cdfs), axis=2)

    def charges(self, rows: Any, weights: np.ndarray) -> np.ndarray:
        """Z [S, K, W] of each reward of each row; weights [S, K, blocks, G]."""
        from irsppl.inner.cpu.leave_one_out import charges

        return charges(rows, self._trimmed(weights))

    def totals(self, rows: Any, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        """[S, K, blocks, G]: each column's penalties over rewards first .. last - 1 [S, K]."""
        from irsppl.inner.cpu.leave_one_out import totals

        return totals(rows, first, last, (self.plan.blocks, len(self.lams)))

    @property
    def dtype(self) -> type:
        """Precision of the tables."""
        return np.float64 if self.plan.rows <= _SHORT else np.float32

    def _trimmed(self, weights: np.ndarray) -> np.ndarray:
        """Weights for the kernels, the negligible ones zero."""
        if self.plan.rows > _SHORT:
            least = _LEAST_WEIGHT * np.abs(weights).sum(axis=(-2, -1), keepdims=True)
            weights = np.where(np.abs(weights) < least, 0, weights)
        return np.ascontiguousarray(weights, self.dtype)


def leave_out_products(cdfs: np.ndarray) -> np.ndarray:
    """[S, K, E] -> [S, K, E]: for each arm the product over all the others."""
    cdfs = np.asarray(cdfs, np.float64)
    products, after = np.ones_like(cdfs), np.ones_like(cdfs[:, 0])
    for a in range(1, cdfs.shape[1]):
        np.multiply(products[:, a - 1], cdfs[:, a - 1], out=products[:, a])
    for a in range(cdfs.shape[1] - 1, 0, -1):
        after *= cdfs[:, a]
        products[:, a - 1] *= after
    return products


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
        return scipy.special.ndtr((x[None, :] - mean[:, None]) / sd[:, None])

    low, high = limits or (np.min(mean - 6 * sd), np.max(mean + 6 * sd))
    inner = _grid(cdf, low, high)
    first, last = 2 * inner[0] - inner[1], 2 * inner[-1] - inner[-2]
    rims = np.concatenate([[first], inner, [last]])
    return inner, (rims[1:] + rims[:-1]) / 2


def _distinct(*columns: Any) -> tuple[np.ndarray, np.ndarray]:
    """(distinct arms [P, ...], which of them each arm is [K]); columns: numbers of the K arms."""
    each = np.column_stack([np.asarray(column, np.float64) for column in columns])
    distinct, which = np.unique(each, axis=0, return_inverse=True)
    return distinct, which.reshape(-1).astype(np.int64)


class BinaryArms(Arms):
    """Rewards 0 or 1; each arm's belief is, or is matched by, Beta(alpha_a, beta_a)."""

    def __init__(
        self, alphas: tuple[float, ...], betas: tuple[float, ...], plan: Plan, exact: bool
    ):
        from irsppl.inner.cpu.one_armed import binary_slopes

        alpha, beta = np.asarray(alphas), np.asarray(betas)
        self.alpha, self.beta, self.plan, self.exact = alpha, beta, plan, exact
        self.units = np.asarray(plan.units)
        most = 1 / self.units.min()
        inner = _grid(lambda x: self._cdf(alpha, beta, self.units, x), 0, most)
        self.edges = np.concatenate([[0.0], inner, [most]])
        self.lams = (self.edges[1:] + self.edges[:-1]) / 2
        self._kinds, self._table_of = _distinct(alpha, beta, self.units, plan.ends)
        made = []
        for a, b, unit, *ends in self._kinds:
            lams, stops = np.tile(unit * self.lams, plan.blocks), np.repeat(ends, CELLS)
            made.append(binary_slopes(a, b, plan.rows, lams, stops, self.dtype))
        shape = (plan.blocks, CELLS)
        self._tables = np.stack([slopes.reshape(-1, *shape) for slopes, _ in made])
        self.starts = np.stack([start.reshape(shape) for _, start in made])[self._table_of]

    @staticmethod
    def _cdf(alpha: Any, beta: Any, units: Any, rates: np.ndarray) -> np.ndarray:
        """[..., E]: P(mu <= rate x unit) for rates [E]."""
        alpha, beta, units = (np.asarray(x)[..., None] for x in (alpha, beta, units))
        return scipy.special.betainc(alpha, beta, np.clip(units * rates, 0, 1))

    def prior_cdfs(self) -> np.ndarray:
        return self._cdf(self.alpha, self.beta, self.units, self.edges)

    @lru_cache(maxsize=256)  # noqa: B019  arms live as long as the cache that holds them
    def _laws(self, kind: int, known: int) -> np.ndarray:
        """[known + 1, G+1]: the laws after each number of successes."""
        wins = np.arange(known + 1)
        alpha, beta, unit = self._kinds[kind, :3]
        return self._cdf(alpha + wins, beta + known - wins, unit, self.edges)

    def cdfs(self, futures: Futures, known: np.ndarray) -> np.ndarray:
        seen = np.arange(futures.rewards.shape[2])[None, None, :] < known[:, :, None]
        wins = (futures.rewards * seen).sum(axis=2).astype(np.int64)
        found = np.empty((*wins.shape, len(self.edges)))
        kinds = np.broadcast_to(self._table_of[None, :], wins.shape)
        known = np.broadcast_to(known, wins.shape)
        for kind, count in np.unique(np.stack([kinds, known], axis=-1).reshape(-1, 2), axis=0):
            mine = (kinds == kind) & (known == count)
            found[mine] = self._laws(int(kind), int(count))[wins[mine]]
        return found

    @staticmethod
    def _states(rewards: np.ndarray) -> np.ndarray:
        """[S, K, W+1]: rows of the tables before each reward, and after the last."""
        n = np.arange(rewards.shape[2] + 1, dtype=np.int32)
        states = np.zeros((*rewards.shape[:2], len(n)), np.int32)
        np.cumsum(rewards, axis=2, dtype=np.int32, out=states[:, :, 1:])
        states += n * (n + 1) // 2
        return states

    def rows(self, futures: Futures) -> Any:
        from irsppl.inner.cpu.leave_one_out import Binary

        states = np.ascontiguousarray(self._states(futures.rewards)[:, :, :-1])
        innovation = (futures.rewards - futures.means[:, :, :-1]).astype(self.dtype)
        return Binary(states, innovation, self._tables, self._table_of)

    @lru_cache(maxsize=4)  # noqa: B019
    def _hinge_tables(self, last: int) -> np.ndarray:
        from irsppl.inner.cpu.one_armed import binary_hinges

        kinds = ((a, b, last, unit * self.edges, self.dtype) for a, b, unit, *_ in self._kinds)
        return np.stack([binary_hinges(*kind) for kind in kinds])

    def hinge_paths(self, futures: Futures, last: int, options: np.ndarray) -> np.ndarray:
        from irsppl.inner.cpu.leave_one_out import binary_hinge_paths

        tables = self._hinge_tables(last)
        nodes = self.units[:, None] * self.edges[None, :]
        states = self._states(futures.rewards)
        return binary_hinge_paths(states, tables, self._table_of, nodes, options, last)


binary_arms = lru_cache(maxsize=4)(BinaryArms)


class SmoothArms(Arms):
    """Any rewards: one-armed values as if posterior means were Gaussian.

    means, sds [K]: of the arms' unknown means; worths [K]: rewards that the prior is worth, so that
    after n more of them the posterior variance is about noise^2 / (worth + n). gaussian: so it is.
    normal: futures bring standard normal innovations, and penalties are whole changes of v;
    otherwise they are of first order in the change of the posterior mean, and of second order too
    where `own_variances` says that `Futures.sds` are the belief's own.
    """

    def __init__(
        self,
        means: tuple[float, ...],
        sds: tuple[float, ...],
        worths: tuple[float, ...],
        plan: Plan,
        gaussian: bool,
        normal: bool,
        own_variances: bool,
    ):
        from irsppl.inner.cpu.one_armed import REACH, gaussian_changes, gaussian_slopes

        mean, sd, worth = (np.asarray(field) for field in (means, sds, worths))
        self.mean, self.sd, self.worth, self.plan = mean, sd, worth, plan
        self.exact, self._normal, self._own_variances = gaussian, normal, own_variances
        self.units = np.asarray(plan.units)
        inner, self.lams = options(mean / self.units, sd / self.units)
        if plan.may_stop:
            self.lams = np.maximum(self.lams, 0)
        self.edges = np.concatenate([[-np.inf], inner, [np.inf]])
        self._options = self.units[:, None] * self.lams[None, :]
        make = gaussian_changes if normal else gaussian_slopes
        kinds, self._table_of = _distinct(worth, plan.ends)
        self._steps = np.empty(len(kinds))
        noise = sd * np.sqrt(worth)
        y = (mean[:, None] - self._options) / sd[:, None]
        self.starts = np.empty((len(mean), plan.blocks, CELLS))
        for p, (value, *ends) in enumerate(kinds):
            for block, end in enumerate(ends):
                table, self._steps[p], first = make(value, plan.rows, int(end), self.dtype)
                if not p and not block:  # one at a time: they are large
                    periods, columns, entries = table.shape
                    shape = (len(kinds), periods, entries, plan.blocks, columns)
                    self._tables: np.ndarray = np.empty(shape, self.dtype)
                self._tables[p, :, :, block] = table.transpose(0, 2, 1)
                grid = np.linspace(-REACH, REACH, len(first))
                for a in np.flatnonzero(self._table_of == p):
                    self.starts[a, block] = noise[a] * np.interp(y[a], grid, first)

    def prior_cdfs(self) -> np.ndarray:
        edges = self.units[:, None] * self.edges[None, :]
        return scipy.special.ndtr((edges - self.mean[:, None]) / self.sd[:, None])

    def cdfs(self, futures: Futures, known: np.ndarray) -> np.ndarray:
        assert futures.sds is not None
        shape = futures.means.shape
        at = np.broadcast_to(known, shape[:2])[:, :, None]
        mean = np.take_along_axis(futures.means, at, axis=2)
        sd = np.take_along_axis(np.broadcast_to(futures.sds, shape), at, axis=2)
        return scipy.special.ndtr((self.units[None, :, None] * self.edges - mean) / sd)

    def hinge_paths(self, futures: Futures, last: int, options: np.ndarray) -> np.ndarray:
        assert futures.sds is not None
        means = futures.means[:, None, :, : last + 1]
        variance = futures.sds[:, None, :, : last + 1] ** 2
        sd = np.sqrt(np.maximum(variance - variance[..., -1:], 0))
        apart = means - np.moveaxis(options, 2, 1)[..., None]
        z = np.clip(apart / np.where(sd > 0, sd, 1), -38, 38)
        density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
        return np.where(sd > 0, apart * scipy.special.ndtr(z) + sd * density, np.maximum(apart, 0))

    def rows(self, futures: Futures) -> Any:
        return self._smooth(futures.means, futures.sds, *self._innovations(futures))

    def _smooth(self, means: Any, sds: Any, index: Any, low: Any, high: Any) -> Any:
        from irsppl.inner.cpu.leave_one_out import Smooth
        from irsppl.inner.cpu.one_armed import REACH

        factors = low.astype(self.dtype), high.astype(self.dtype)
        tables = (self._tables, self._table_of, self._steps)
        options = self._options.astype(self.dtype)
        return Smooth(means, sds, index, *factors, *tables, REACH, options)

    def joint_rows(
        self, means: np.ndarray, sds: np.ndarray, apart: np.ndarray, size: np.ndarray
    ) -> Any:
        """The same from posteriors along each row, for `charges` only; all [S, K, W].

        apart: rewards less their means, in units of their deviations; size: what the tables'
        numbers are multiplied by.
        """
        if self._normal:
            return self._smooth(means, sds, *_between_knots(apart, size))
        index, low = np.zeros(apart.shape, np.int16), apart * size
        return self._smooth(means, sds, index, low, np.zeros_like(low))

    def _innovations(self, futures: Futures) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Each as two neighbouring entries of a table's row: the first's number, both factors."""
        means, sds = futures.means, futures.sds
        assert sds is not None
        n = np.arange(means.shape[2] - 1)[None, None, :]
        noise = sds[:, :, :-1] * np.sqrt(self.worth[None, :, None] + n)
        if self._normal:
            assert futures.normals is not None
            return _between_knots(futures.normals, noise)
        change = np.diff(means, axis=2)
        if self._own_variances:
            # Of mean zero, because mu_hat^2 + variance is a martingale.
            square = (change**2 + np.diff(sds**2, axis=2)) / noise
        else:
            square = np.zeros_like(change)
        return np.zeros(change.shape, np.int16), change, square


def _between_knots(
    normals: np.ndarray, size: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(knot below, its factor, the next one's) of standard normal numbers, times size."""
    from irsppl.inner.cpu.one_armed import KNOTS

    at = (normals - KNOTS[0]) / (KNOTS[1] - KNOTS[0])
    index = np.clip(at, 0, len(KNOTS) - 2).astype(np.int16)
    up = at - index
    return index, size * (1 - up), size * up


smooth_arms = lru_cache(maxsize=4)(SmoothArms)


def second_best_mean(expected_best: Callable[[list[int]], float], num_arms: int) -> float:
    """E of the second largest of independent numbers, from E max over subsets of them.

    sum_a max over all but a counts the largest K - 1 times and the second once.
    """
    arms = list(range(num_arms))
    without = sum(expected_best([b for b in arms if b != a]) for a in arms)
    return without - (num_arms - 1) * expected_best(arms)
