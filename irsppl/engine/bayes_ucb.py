"""Bayes-UCB: the largest quantile 1 - 1/t of the belief about an arm's mean, t = 1, 2, ...

Kaufmann, Cappe and Garivier (2012). At t = 1 that is no rule, and an arm is drawn at random. Only
the largest quantile is wanted, so one is solved for only where it beats the best so far, and
whether it does is one evaluation of a CDF.
"""

from __future__ import annotations

import functools
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from irsppl.engine import verbs
from irsppl.engine.verbs import implements
from irsppl.inner.arrays import Floats
from irsppl.inner.cpu import rng as random


class BayesUCB(NamedTuple):
    """Each arm's last solved quantile, from which a search for the next begins."""

    warm: Floats  # [K]
    normal: Floats  # quantiles of the standard normal law by t, where they are wanted


@functools.lru_cache(maxsize=8)
def normal_quantiles(periods: int) -> Floats:
    """Standard normal quantiles 1 - 1/t for t = 0, .., periods (0 where there is none)."""
    inverse = NormalDist().inv_cdf
    return np.array([inverse(1.0 - 1.0 / t) if t > 1 else 0.0 for t in range(periods + 1)])


@implements(verbs.reset, BayesUCB)
def _(part):
    part.warm[:] = 0.0


@implements(verbs.choose, BayesUCB)
def _(rule, family, limits, rng, period, remaining):
    warm = rule.warm
    if period == 0 and remaining > 1:
        return np.int64(random.uniform(rng) * warm.size)
    level, z = 1.0 - 1.0 / (period + 1), rule.normal[min(period + 1, rule.normal.size - 1)]
    chosen = 0
    best = -np.inf
    for a in range(warm.size):
        if period == 0:
            score = verbs.mean(family, a)
        else:
            score = verbs.quantile(family, a, level, z, best, max(best, warm[a]))
        if score > best:
            best = score
            chosen = a
            warm[a] = score
    return chosen
