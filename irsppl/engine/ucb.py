"""UCB1 and KL-UCB: rules that know no prior, on the predictive means.

    ucb1     m + 2 s sqrt(2 log(t - 1) / n), rewards s-sub-Gaussian (Auer et al., 2002)
    kl-ucb   largest q with n d(m, q) <= log t (Garivier and Cappe, 2011, with c = 0)

t is the number of the period, from 1, n the rewards seen of the arm. Every arm is pulled once
first, in the order of the predictive means (the rules leave the order open).
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from irsppl.engine import verbs
from irsppl.engine.verbs import implements, stateless, verb
from irsppl.inner.arrays import Floats
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.families import BETA_BERNOULLI, GAMMA_POISSON, NORMAL_NORMAL
from irsppl.inner.cpu.rng import KERNEL

# Arms whose bound is this close, in units of their budget, to the best so far count as equal to it.
_TIE: Final = 1e-12


class UCB1(NamedTuple):
    """Sub-Gaussian scales."""

    scale: Floats  # [K]


class KLUCB(NamedTuple):
    """A divergence, by the code of its family; means are mapped by (m - low) / unit first."""

    divergence: int
    scale: Floats  # [K] noise of Gaussian rewards
    low: float
    unit: float


stateless(UCB1, KLUCB)


@njit(**KERNEL)
def divergence(family: int, p: float, q: float) -> float:
    """Kullback-Leibler divergence between rewards of means ``p`` and ``q``; not Gaussian."""
    if family == BETA_BERNOULLI:
        if q >= 1.0:
            return 0.0 if p >= 1.0 else np.inf
        d = 0.0
        if p > 0.0:
            d += p * math.log(p / q)
        if p < 1.0:
            d += (1.0 - p) * math.log((1.0 - p) / (1.0 - q))
        return d
    if family == GAMMA_POISSON:
        return q - p + (p * math.log(p / q) if p > 0.0 else 0.0)
    if p <= 0.0:
        return np.inf if q > 0.0 else 0.0
    return p / q - 1.0 - math.log(p / q)


@njit(**KERNEL)
def upper(family: int, p: float, budget: float) -> float:
    """Largest q with d(p, q) <= ``budget``; not Gaussian.

    Bisection: it is called for the few arms that beat the best one so far.
    """
    lo = p
    if family == BETA_BERNOULLI:
        hi = min(1.0, p + math.sqrt(0.5 * budget))  # Pinsker's inequality
    elif family == GAMMA_POISSON:
        hi = p + budget + math.sqrt(budget * (budget + 2.0 * p))  # d >= (q - p)^2 / (2 q)
    else:
        hi = p * math.exp(1.0 + budget)  # d >= log(q / p) - 1
    for _ in range(60):
        q = 0.5 * (lo + hi)
        if divergence(family, p, q) <= budget:
            lo = q
        else:
            hi = q
    return 0.5 * (lo + hi)


@verb
def _bound(rule, arm, mean, seen, period, best):
    """The upper confidence bound of an arm, or anything below ``best`` where it is no higher."""


@implements(_bound, UCB1)
def _(rule, arm, mean, seen, period, best):
    return mean + 2.0 * rule.scale[arm] * math.sqrt(2.0 * math.log(max(period, 1)) / seen)


@implements(_bound, KLUCB)
def _(rule, arm, mean, seen, period, best):
    budget = math.log(period + 1.0) / seen
    if rule.divergence == NORMAL_NORMAL:
        return mean + rule.scale[arm] * math.sqrt(2.0 * budget)
    m, b = (mean - rule.low) / rule.unit, (best - rule.low) / rule.unit
    if b > m and divergence(rule.divergence, m, b) >= budget * (1.0 - _TIE):
        return -np.inf
    return rule.low + rule.unit * upper(rule.divergence, m, budget)


@implements(verbs.choose, UCB1, KLUCB)
def _(rule, family, limits, rng, period, remaining):
    arms = limits.made.size
    fresh = False
    for a in range(arms):
        fresh = fresh or limits.made[a] == 0
    chosen = 0
    best = -np.inf
    for a in range(arms):
        score = verbs.mean(family, a)
        if fresh:
            if limits.made[a] > 0:
                continue
        else:
            seen = max(limits.made[a] - verbs.waiting(limits.delay, a), 1)
            score = _bound(rule, a, score, seen, period, best)
        if score > best:
            best = score
            chosen = a
    return chosen
