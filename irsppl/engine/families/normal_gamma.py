"""Gaussian rewards with unknown mean and variance, normal-inverse-gamma belief."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from irsppl import beliefs
from irsppl._checks import host64
from irsppl.engine import verbs
from irsppl.engine.families.registry import Maker, makes
from irsppl.engine.verbs import INLINE, implements, one_by_one
from irsppl.inner.arrays import Floats, Ints, Words
from irsppl.inner.cpu import rng as random
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.rng import KERNEL
from irsppl.inner.cpu.special import beta_cdf


class NormalInverseGamma(NamedTuple):
    """mu ~ N(mean, variance / precision), 1 / variance ~ Gamma(shape, rate), for each arm."""

    first: Floats  # [4, K]: mean, precision, shape, rate at the start
    now: Floats  # [4, K]
    # Each arm's future, as far as it has been drawn: its mean and standard deviation, its rewards.
    truth: Floats  # [K, 2]
    drawn: Ints  # [K]
    futures: Floats  # [K, T]


@makes(beliefs.NormalInverseGamma)
def _(belief: beliefs.NormalInverseGamma, needs: frozenset[str]) -> Maker:
    fields = (belief.mean, belief.precision, belief.shape, belief.rate)
    first = np.stack([host64(field) for field in fields])
    arms = first.shape[1]
    return lambda horizon, _: NormalInverseGamma(
        first,
        np.empty_like(first),
        np.empty((arms, 2)),
        np.zeros(arms, np.int64),
        np.empty((arms, horizon)),
    )


@njit(**KERNEL)
def student(
    mean: float, precision: float, shape: float, rate: float, lam: float
) -> tuple[float, float, float]:
    """E[(mu - lam)+], P(mu > lam) and the density of mu at lam.

    mu - mean is Student t, 2 shape degrees of freedom, times a scale.
    """
    freedom = 2.0 * shape
    scale = math.sqrt(rate / (shape * precision))
    z = (lam - mean) / scale
    log_density = (
        math.lgamma(0.5 * freedom + 0.5)
        - math.lgamma(0.5 * freedom)
        - 0.5 * math.log(freedom * math.pi)
        - (0.5 * freedom + 0.5) * math.log1p(z * z / freedom)
    )
    density = math.exp(log_density)
    tail = 0.5 * beta_cdf(0.5 * freedom, 0.5, freedom / (freedom + z * z))
    above = tail if z > 0.0 else 1.0 - tail
    gain = scale * ((freedom + z * z) / (freedom - 1.0) * density - z * above)
    return gain, above, density / scale


@implements(verbs.reset, NormalInverseGamma)
def _(family):
    for i in range(4):
        for a in range(family.first.shape[1]):
            family.now[i, a] = family.first[i, a]


@implements(verbs.observe, NormalInverseGamma)
def _(family, arm, reward):
    now = family.now
    kappa, gap = now[1, arm], reward - now[0, arm]
    now[0, arm] += gap / (kappa + 1.0)
    now[1, arm] += 1.0
    now[2, arm] += 0.5
    now[3, arm] += 0.5 * kappa * gap * gap / (kappa + 1.0)


@implements(verbs.mean, NormalInverseGamma)
def _(family, arm):
    return family.now[0, arm]


@implements(verbs.highest, NormalInverseGamma)
def _(family, arm):
    return np.inf


@implements(verbs.gain, NormalInverseGamma)
def _(family, arm, lam):
    now = family.now
    gain, above, _ = student(now[0, arm], now[1, arm], now[2, arm], now[3, arm], lam)
    return gain, above


@implements(verbs.quantile, NormalInverseGamma)
def _(family, arm, level, z, floor, start):
    mean, kappa, shape, rate = (
        family.now[0, arm],
        family.now[1, arm],
        family.now[2, arm],
        family.now[3, arm],
    )
    # Newton's method kept inside a shrinking bracket; levels of one half or more.
    lo, hi = mean, np.inf
    x = max(start, mean)
    width = math.sqrt(rate / (shape * kappa))
    for _ in range(200):
        _, above, density = student(mean, kappa, shape, rate, x)
        gap = (1.0 - level) - above  # rises with x
        if gap < 0.0:
            lo = x
        else:
            hi = x
        new = x - gap / density
        if not lo <= new <= hi:
            new = 0.5 * (lo + hi) if hi < np.inf else lo + width
            width *= 2.0
        if abs(new - x) <= 1e-13 * (abs(new - mean) + width):
            return new
        x = new
    return x


@njit(**INLINE)
def _draw(family: NormalInverseGamma, rng: Words, arm: int) -> tuple[float, float]:
    """The arm's true mean and the standard deviation of its rewards."""
    now = family.now
    sd = math.sqrt(now[3, arm] / random.gamma(rng, now[2, arm]))
    return now[0, arm] + sd / math.sqrt(now[1, arm]) * random.normal(rng), sd


@implements(verbs.draw_means, NormalInverseGamma)
def _(family, rng, out):
    for a in range(out.size):
        out[a] = _draw(family, rng, a)[0]


@implements(verbs.draw_future_means, NormalInverseGamma)
def _(family, rng, counts, out):
    for a in range(out.size):
        n = counts[a]
        mean, kappa = family.now[0, a], family.now[1, a]
        out[a] = mean
        if n > 0:
            truth, sd = _draw(family, rng, a)
            earned = n * truth + math.sqrt(n) * sd * random.normal(rng)
            out[a] = (kappa * mean + earned) / (kappa + n)


@implements(verbs.draw_path, NormalInverseGamma)
def _(family, rng, arm, length, out, start, cumulative):
    mean, kappa = family.now[0, arm], family.now[1, arm]
    least, summed = mean, mean
    out[start] = mean
    if length <= 1:
        return least
    truth, sd = _draw(family, rng, arm)
    total = kappa * mean
    for n in range(1, length):
        total += truth + sd * random.normal(rng)
        mean = total / (kappa + n)
        least = mean if mean < least else least
        summed += mean
        out[start + n] = summed if cumulative else mean
    return least


@implements(verbs.draw_prefix, NormalInverseGamma)
def _(family, rng, arm, skip, width, total, row):
    mean, kappa = family.now[0, arm], family.now[1, arm]
    truth, sd = _draw(family, rng, arm)
    earned = kappa * mean
    length, rest = skip + width, total - width
    for n in range(length):
        if n > 0:
            earned += truth + sd * random.normal(rng)
        if n >= skip:
            row[1 + n - skip] = earned / (kappa + n)
    if rest > 0:
        earned += rest * truth + math.sqrt(rest) * sd * random.normal(rng)
    return earned / (kappa + length - 1 + rest)


@implements(verbs.renew, NormalInverseGamma)
def _(family, rng):
    for a in range(family.drawn.size):
        family.drawn[a] = 0


@implements(verbs.bracket, NormalInverseGamma)
def _(family, horizon):
    now = family.now
    lo, hi = np.inf, -np.inf
    for a in range(family.drawn.size):
        mean, kappa, shape, rate = now[0, a], now[1, a], now[2, a], now[3, a]
        lo = min(lo, mean)
        d = math.sqrt(rate / (shape * kappa))
        while horizon * student(mean, kappa, shape, rate, mean + d)[0] >= d:
            d *= 2.0
        hi = max(hi, mean + d)
    return lo, hi


@implements(verbs.begin, NormalInverseGamma)
def _(family, arm, lam, node):
    now = family.now
    mean, kappa, shape, rate = now[0, arm], now[1, arm], now[2, arm], now[3, arm]
    return mean, student(mean, kappa, shape, rate, lam)[0], kappa, shape, rate


one_by_one(NormalInverseGamma)


@implements(verbs.follow, NormalInverseGamma)
def _(family, rng, arm, at, lam, cursor):
    if family.drawn[arm] <= at:
        if at == 0:
            family.truth[arm, 0], family.truth[arm, 1] = _draw(family, rng, arm)
        reward = family.truth[arm, 0] + family.truth[arm, 1] * random.normal(rng)
        family.futures[arm, at] = reward
        family.drawn[arm] = at + 1
    mean, _, kappa, shape, rate = cursor
    gap = family.futures[arm, at] - mean
    mean += gap / (kappa + 1.0)
    rate += 0.5 * kappa * gap * gap / (kappa + 1.0)
    kappa += 1.0
    shape += 0.5
    return mean, student(mean, kappa, shape, rate, lam)[0], kappa, shape, rate
