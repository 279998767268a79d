"""What a path's rewards brought beyond expectation, weighed by what they were worth.

Under any policy, (mu_hat after the reward - mu_hat before) x slope has mean zero at every pull when
the slope depends on the past only.  With the slope of a one-armed value (the pulled arm alone,
for the periods that are left, against the best of the others as they are believed to be now) the
sum follows the luck of a path closely.
"""

import math
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from irsppl.inner.arrays import Floats, Ints, Singles
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.one_armed import REACH, binary_slopes
from irsppl.inner.cpu.rng import KERNEL
from irsppl.inner.cpu.solo import between, slopes_row, slopes_table

# The normal law between -6 and 6, near enough.
_FAR, _STEPS = 6, 32
_NORMAL = scipy.special.ndtr(np.arange(-_FAR * _STEPS, _FAR * _STEPS + 1) / _STEPS)
# 0/1 rewards: pulls beyond which a Beta arm is near enough to Gaussian, and ends of its tables.
_KEPT = 150
_KINDS = 7
# Less likely cells do not count: slopes may be anything that is known before the reward.
_COUNTS = 1e-3
_ENDS = np.array([0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0])


@njit(**KERNEL)
def _cdf_row(mean: float, sd: float, edges: Floats, out: Floats) -> None:
    steps = _STEPS / sd
    for e in range(len(edges)):
        at = min(max((edges[e] - mean) * steps + _FAR * _STEPS, 0.0), 2.0 * _FAR * _STEPS - 1e-6)
        i = int(at)
        out[e] = _NORMAL[i] + (at - i) * (_NORMAL[i + 1] - _NORMAL[i])


@njit(**KERNEL)
def _beta_row(
    alpha: float, worth: float, won: bool, edges: Floats, cdf: Floats, power: Floats
) -> None:
    """One more reward: CDFs F at the edges and x^alpha (1-x)^beta / B, without a new integral."""
    beta = worth - alpha
    for e in range(len(edges)):
        if won:
            cdf[e] = max(cdf[e] - power[e] / alpha, 0.0)
            power[e] = max(power[e] * edges[e] * worth / alpha, 1e-300)
        else:
            cdf[e] = min(cdf[e] + power[e] / beta, 1.0)
            power[e] = max(power[e] * (1.0 - edges[e]) * worth / beta, 1e-300)


@njit(**KERNEL)
def _weigh(cdfs: Floats, a: int, under: Floats, weights: Floats, cells: Ints) -> int:
    """Where the best of the other arms may lie: how many cells count, which, and how much.

    under: its probability to lie in a cell or below.
    """
    below, used = 0.0, 0
    for g in range(len(under)):
        above = 1.0
        if g < len(under) - 1:
            for b in range(len(cdfs)):
                if b != a:
                    above *= cdfs[b, g]
        if above - below > _COUNTS:
            cells[used], weights[used] = g, above - below
            used += 1
        below = under[g] = above
    return used


@njit(**KERNEL)
def _replay(
    actions: NDArray[np.int16],
    means: Floats,
    sds: Floats,
    worth: Floats,
    edges: Floats,
    lams: Floats,
    table: Singles,
    step: float,
    near: Singles,
    kept: int,
    ends: Floats,
    start_cdfs: Floats,
    start_powers: Floats,
    cdfs: Floats,
    powers: Floats,
    under: Floats,
    weights: Floats,
    counts: Ints,
    stale: NDArray[np.bool_],
    cells: Ints,
    out: Floats,
) -> None:
    paths, periods = actions.shape
    arms = means.shape[1]
    for p in range(paths):
        of_sd = p if len(sds) > 1 else 0
        for a in range(arms):
            counts[a] = 0
            if kept > 0:
                for e in range(len(edges)):
                    cdfs[a, e] = start_cdfs[a, e]
                    powers[a, e] = start_powers[a, e]
            stale[a] = kept == 0
        last, used = -1, 0
        believed, second = 0.0, 0.0
        for k in range(_KINDS):
            out[p, 2 + k] = 0.0
        for t in range(periods):
            a = actions[p, t]
            if a < 0:
                break
            n = counts[a]
            mean, sd = means[p, a, n], sds[of_sd, a, n]
            after, sd_after = means[p, a, n + 1], sds[of_sd, a, n + 1]
            believed += mean
            left = periods - t - 1
            if left > 0:
                worth_now = worth[a] + n
                row, scale = slopes_row(worth_now, left)
                slope, bend = 0.0, 0.0
                # How good the best of the others may be has not changed while one arm is pulled.
                if a != last:
                    for b in range(arms):
                        if stale[b] and b != a:
                            m = counts[b]
                            _cdf_row(means[p, b, m], sds[of_sd, b, m], edges, cdfs[b])
                            stale[b] = False
                    last, used = a, _weigh(cdfs, a, under, weights, cells)
                # Few 0/1 rewards are far from Gaussian: a table of Beta arms, between two ends.
                pulled = int(worth_now - 2.0 + 0.5)
                exact = kept > 0 and 0 <= pulled < kept
                low_end, of_end, start = 0, 0.0, 0
                if exact:
                    won = min(max(int(mean * worth_now - 1.0 + 0.5), 0), pulled)
                    start = pulled * (pulled + 1) // 2 + won
                    end = pulled + left + 1.0
                    while low_end < len(ends) - 2 and ends[low_end + 1] < end:
                        low_end += 1
                    of_end = (end - ends[low_end]) / (ends[low_end + 1] - ends[low_end])
                    of_end = min(max(of_end, 0.0), 1.0)
                worse = np.searchsorted(lams, mean)
                better = under[worse - 1] if worse > 0 else 0.0
                steps = 1.0 / (sd * step)
                for i in range(used):
                    g = cells[i]
                    if exact:
                        c = low_end * len(lams) + g
                        one, two = near[start, c], near[start, c + len(lams)]
                        slope += weights[i] * ((1.0 - of_end) * one + of_end * two)
                        continue
                    here = between(table, row, (mean - lams[g]) * steps + REACH / step)
                    slope += weights[i] * here[0]
                    bend += weights[i] * here[1]
                if exact:  # the table is per reward, not per change of the mean
                    slope, scale = slope * (worth_now + 1.0), 1.0
                change = after - mean
                noise = sd * math.sqrt(worth_now)
                # Apart, because the slopes may be off by another factor in each.
                kind = 0 if t < periods // 20 else (1 if t < periods // 4 else 2)
                for b in range(arms):
                    if means[p, b, counts[b]] > mean:
                        kind += 3
                        break
                out[p, 2 + kind] += change * slope * scale
                out[p, 8] += change * left * better
                square = change * change + sd_after * sd_after - sd * sd
                second += square * bend * scale * math.sqrt(scale) / noise
            counts[a] = n + 1
            if kept > 0:
                worth_now = worth[a] + n
                _beta_row(mean * worth_now, worth_now, after > mean, edges, cdfs[a], powers[a])
            else:
                stale[a] = True
        out[p, 0], out[p, 1] = believed, second


def replay(
    actions: NDArray,
    means: NDArray,
    sds: NDArray,
    worth: NDArray,
    edges: NDArray,
    lams: NDArray,
    binary: bool,
) -> Floats:
    """[S, 8]: sum of the posterior means of the pulled arms, second- and first-order luck.

    First-order luck in six parts: early, in between and late; of the arm that is believed best, and
    of others.

    actions [S, T], -1 from where play has stopped; means, sds [S or 1, K, T+1] along each arm's
    own rewards; worth [K] rewards that each prior is worth; edges [G-1] of cells with options
    lams [G]; binary: rewards are 0 or 1. The second-order luck has mean zero where sds are the
    belief's own.
    """
    table, step = slopes_table()
    periods, arms = actions.shape[1], means.shape[1]
    ends = np.unique(np.round(periods * _ENDS)).astype(np.float64)
    near, kept = np.zeros((1, 1), np.float32), 0
    if binary and len(ends) > 1:
        kept = min(_KEPT, periods)
        near = _near(periods, tuple(ends), tuple(lams), kept)
    out = np.empty((len(actions), 2 + _KINDS))
    starts = np.zeros((2, arms, len(edges)))
    if kept:
        alpha, total = means[0, :, 0] * worth, worth
        a, b, x = alpha[:, None], (total - alpha)[:, None], edges[None, :]
        starts[0] = scipy.special.betainc(a, b, x)
        starts[1] = np.exp(
            scipy.special.xlogy(a, x) + scipy.special.xlog1py(b, -x) - scipy.special.betaln(a, b)
        )
    work = (
        np.empty((arms, len(edges))),
        np.empty((arms, len(edges))),
        np.empty(len(lams)),
        np.empty(len(lams)),
        np.empty(arms, np.int64),
        np.empty(arms, np.bool_),
        np.empty(len(lams), np.int64),
    )
    tables = (table, step, near, kept, ends)
    rest = (np.ascontiguousarray(edges), lams, *tables, *starts, *work, out)
    _replay(np.ascontiguousarray(actions, np.int16), means, sds, worth, *rest)
    return out


@lru_cache(maxsize=2)
def _near(periods: int, ends: tuple[float, ...], lams: tuple[float, ...], kept: int) -> Singles:
    """Slopes of a uniform Beta arm, for each end and option."""
    options, stops = np.tile(lams, len(ends)), np.repeat(ends, len(lams))
    return binary_slopes(1.0, 1.0, periods, options, stops, kept=kept)[0]
