"""Linear-Gaussian arms: rewards N(features[a] theta + offset[a], noise_sd[a]^2), theta shared."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from irsppl import beliefs
from irsppl._checks import host64
from irsppl.beliefs.linear_gaussian import LEAST_SD
from irsppl.engine import verbs
from irsppl.engine.families.futures import bracket
from irsppl.engine.families.registry import Maker, makes
from irsppl.engine.verbs import INLINE, implements, one_by_one
from irsppl.inner.arrays import Floats, Ints
from irsppl.inner.cpu import rng as random
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.families import NORMAL_NORMAL
from irsppl.inner.cpu.special import expected_gain


class LinearGaussian(NamedTuple):
    """The covariance is root root', as in `irsppl.LinearGaussian`; d weights."""

    features: Floats  # [K, d]
    noise: Floats  # [K]
    offset: Floats  # [K]
    floor: float  # least standard deviation of a mean, in units of the noise
    first_mean: Floats  # [d]
    first_root: Floats  # [d, d]
    mean: Floats  # [d], now
    root: Floats  # [d, d]
    means: Floats  # [K] predictive
    spread: Floats  # [K, d]: features root
    work: Floats  # [d, d + 2]
    # Every arm alone, as a conjugate Gaussian, and its future as far as it has been drawn.
    xi: Floats  # [K]
    nu: Floats  # [K]
    truth: Floats  # [K]
    drawn: Ints  # [K]
    futures: Floats  # [K, T]
    others: Floats  # [K, d, d] work array


@makes(beliefs.LinearGaussian)
def _(belief: beliefs.LinearGaussian, needs: frozenset[str]) -> Maker | None:
    if needs & {"path", "prefix"}:
        return None
    fields = (belief.features, belief.noise_sd, belief.offset, belief.mean, belief.root)
    features, noise, offset, mean, root = (np.array(host64(field)) for field in fields)
    arms, dim = features.shape
    return lambda horizon, _: LinearGaussian(
        features,
        noise,
        offset,
        LEAST_SD,
        mean,
        root,
        np.empty(dim),
        np.empty((dim, dim)),
        np.empty(arms),
        np.empty((arms, dim)),
        np.empty((dim, dim + 2)),
        np.empty(arms),
        np.empty(arms),
        np.empty(arms),
        np.zeros(arms, np.int64),
        np.empty((arms, horizon)),
        np.empty((arms, dim, dim)),
    )


@njit(**INLINE)
def _refresh(family: LinearGaussian) -> None:
    """Predictive means and spreads of the arms."""
    arms, dim = family.features.shape
    for a in range(arms):
        total = family.offset[a]
        for i in range(dim):
            total += family.features[a, i] * family.mean[i]
            s = 0.0
            for j in range(dim):
                s += family.features[a, j] * family.root[j, i]
            family.spread[a, i] = s
        family.means[a] = total


@implements(verbs.reset, LinearGaussian)
def _(family):
    for i in range(family.mean.size):
        family.mean[i] = family.first_mean[i]
        for j in range(family.mean.size):
            family.root[i, j] = family.first_root[i, j]
    _refresh(family)


@implements(verbs.observe, LinearGaussian)
def _(family, arm, reward):
    # Potter (1963): with f = root' x and v = f'f + s^2 the new root is
    # root (I - f f' / (v + s sqrt(v))), whose square is the posterior covariance.
    dim, s = family.mean.size, family.noise[arm]
    f = family.spread[arm]
    v = s * s
    for i in range(dim):
        v += f[i] * f[i]
    surprise = (reward - family.means[arm]) / v
    shrink = 1.0 / (v + s * math.sqrt(v))
    for i in range(dim):
        total = 0.0
        for j in range(dim):
            total += family.root[i, j] * f[j]
        family.mean[i] += total * surprise
        for j in range(dim):
            family.root[i, j] -= total * shrink * f[j]
    _refresh(family)


@implements(verbs.mean, LinearGaussian)
def _(family, arm):
    return family.means[arm]


@implements(verbs.mean_sd, LinearGaussian)
def _(family, arm):
    square = 0.0
    for i in range(family.mean.size):
        square += family.spread[arm, i] * family.spread[arm, i]
    return max(math.sqrt(square), family.floor * family.noise[arm])


@implements(verbs.quantile, LinearGaussian)
def _(family, arm, level, z, floor, start):
    return family.means[arm] + verbs.mean_sd(family, arm) * z


@implements(verbs.draw_means, LinearGaussian)
def _(family, rng, out):
    dim = family.mean.size
    for a in range(out.size):
        out[a] = family.means[a]
    for i in range(dim):
        z = random.normal(rng)
        for a in range(out.size):
            out[a] += family.spread[a, i] * z


@njit(**INLINE)
def _solve(work: Floats) -> None:
    """The last column, [d], becomes the solution x of A x = c; A is the lower triangle.

    Cholesky in place, then two triangular systems.
    """
    dim = work.shape[0]
    for j in range(dim):
        for k in range(j):
            work[j, j] -= work[j, k] * work[j, k]
        work[j, j] = math.sqrt(work[j, j])
        for i in range(j + 1, dim):
            for k in range(j):
                work[i, j] -= work[i, k] * work[j, k]
            work[i, j] /= work[j, j]
    for i in range(dim):
        for k in range(i):
            work[i, dim + 1] -= work[i, k] * work[k, dim + 1]
        work[i, dim + 1] /= work[i, i]
    for i in range(dim - 1, -1, -1):
        for k in range(i + 1, dim):
            work[i, dim + 1] -= work[k, i] * work[k, dim + 1]
        work[i, dim + 1] /= work[i, i]


@implements(verbs.draw_future_means, LinearGaussian)
def _(family, rng, counts, out):
    # In whitened weights: precision A = I + sum_b n_b g_b g_b' with g_b = spread_b / noise_b, and
    # the means rise by noise_a g_a' A^-1 c, c = sum_b g_b (surprises of b, in noise units).
    dim, work = family.mean.size, family.work
    for i in range(dim):
        work[i, dim] = random.normal(rng)  # the weights themselves
        work[i, dim + 1] = 0.0
        for j in range(dim):
            work[i, j] = 1.0 if i == j else 0.0
    for b in range(out.size):
        n = float(counts[b])
        if n <= 0.0:
            continue
        inv = 1.0 / family.noise[b]
        seen = 0.0
        for i in range(dim):
            seen += family.spread[b, i] * work[i, dim]
        seen = n * seen * inv + math.sqrt(n) * random.normal(rng)
        for i in range(dim):
            g = family.spread[b, i] * inv
            work[i, dim + 1] += g * seen
            for j in range(i + 1):
                work[i, j] += n * g * family.spread[b, j] * inv
    _solve(work)
    for a in range(out.size):
        total = family.means[a]
        for i in range(dim):
            total += family.spread[a, i] * work[i, dim + 1]
        out[a] = total


# ------------------------------------------------------------------ V-Zero-separable


@implements(verbs.draw_separable, LinearGaussian)
def _(family, rng, periods, cells, stride, start, least):
    # As above; with n rewards of arm a and m of every other one A is I + m O_a + n g_a g_a', where
    # O_a is summed over the others: nothing is subtracted.
    arms, dim, work = family.means.size, family.mean.size, family.work
    for i in range(dim):
        work[i, dim] = random.normal(rng)  # the weights themselves
    for a in range(arms):
        inv, truth, total = 1.0 / family.noise[a], 0.0, 0.0
        for i in range(dim):
            truth += family.spread[a, i] * inv * work[i, dim]
        for n in range(periods - 1):
            total += truth + random.normal(rng)
            family.futures[a, n] = total  # surprises of the first n + 1 rewards, in noise units
        for i in range(dim):
            for j in range(i + 1):
                family.others[a, i, j] = 0.0
        for b in range(arms):
            if b != a:
                square = 1.0 / (family.noise[b] * family.noise[b])
                for i in range(dim):
                    g = family.spread[b, i] * square
                    for j in range(i + 1):
                        family.others[a, i, j] += g * family.spread[b, j]
        cells[a * stride + start] = 0.0
        least[a] = np.inf
    for n in range(periods):
        m = periods - 1 - n
        for a in range(arms):
            inv = 1.0 / family.noise[a]
            for i in range(dim):
                g = family.spread[a, i] * inv
                for j in range(i + 1):
                    own = n * g * family.spread[a, j] * inv
                    work[i, j] = m * family.others[a, i, j] + own + (1.0 if i == j else 0.0)
                work[i, dim + 1] = 0.0
            for b in range(arms):
                count = n if b == a else m
                if count > 0:
                    seen = family.futures[b, count - 1] / family.noise[b]
                    for i in range(dim):
                        work[i, dim + 1] += family.spread[b, i] * seen
            _solve(work)
            mean = family.means[a]
            for i in range(dim):
                mean += family.spread[a, i] * work[i, dim + 1]
            least[a] = min(least[a], mean)
            at = a * stride + start + n
            cells[at + 1] = cells[at] + mean


# ------------------------------------------------------------------ one arm at a time: the index


@implements(verbs.renew, LinearGaussian)
def _(family, rng):
    for a in range(family.means.size):
        noise, sd = family.noise[a], verbs.mean_sd(family, a)
        family.nu[a] = noise * noise / (sd * sd)
        family.xi[a] = family.means[a] * family.nu[a]
        family.drawn[a] = 0
    verbs.draw_means(family, rng, family.truth)  # one draw of the weights for all arms


@implements(verbs.bracket, LinearGaussian)
def _(family, horizon):
    return bracket(NORMAL_NORMAL, family.xi, family.nu, family.noise, horizon)


@implements(verbs.begin, LinearGaussian)
def _(family, arm, lam, node):
    xi, nu = family.xi[arm], family.nu[arm]
    return xi / nu, expected_gain(NORMAL_NORMAL, xi, nu, family.noise[arm], lam), xi, nu


one_by_one(LinearGaussian)


@implements(verbs.follow, LinearGaussian)
def _(family, rng, arm, at, lam, cursor):
    if family.drawn[arm] <= at:
        family.futures[arm, at] = family.truth[arm] + family.noise[arm] * random.normal(rng)
        family.drawn[arm] = at + 1
    xi, nu = cursor[2] + family.futures[arm, at], cursor[3] + 1.0
    return xi / nu, expected_gain(NORMAL_NORMAL, xi, nu, family.noise[arm], lam), xi, nu
