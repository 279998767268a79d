"""Rules that look at one number per arm: random, (epsilon-)greedy, Thompson sampling, IRS.FH."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from irsppl.engine import verbs
from irsppl.engine.verbs import implements, stateless
from irsppl.inner.arrays import Floats, Ints
from irsppl.inner.cpu import rng as random


class Random(NamedTuple):
    """Every arm that can be paid with the same probability."""

    num_arms: int


class Greedy(NamedTuple):
    """The best predictive mean."""

    num_arms: int


class EpsilonGreedy(NamedTuple):
    """With probability min(1, rate / t) an arm at random, else the best predictive mean."""

    num_arms: int
    rate: float


class TS(NamedTuple):
    """The best of one draw of the true means."""

    scores: Floats  # [K]


class TSRatio(NamedTuple):
    """The best of one draw of the true means by cost, among the arms that can be paid."""

    scores: Floats  # [K]
    costs: Floats  # [K]


class FH(NamedTuple):
    """The best of one draw of the means that the last decision could know of."""

    scores: Floats  # [K]
    counts: Ints  # [K]


stateless(Random, Greedy, EpsilonGreedy, TS, TSRatio, FH)


@implements(verbs.choose, Random)
def _(rule, family, limits, rng, period, remaining):
    payable = 0
    for a in range(rule.num_arms):
        payable += 1 if verbs.affordable(limits.purse, a) else 0
    pick = np.int64(random.uniform(rng) * payable)
    for a in range(rule.num_arms):
        if verbs.affordable(limits.purse, a):
            if pick == 0:
                return a
            pick -= 1
    return -1


@implements(verbs.choose, Greedy)
def _(rule, family, limits, rng, period, remaining):
    chosen = -1
    best = -np.inf
    for a in range(rule.num_arms):
        score = verbs.mean(family, a)
        if score > best and verbs.affordable(limits.purse, a):
            best = score
            chosen = a
    return -1 if verbs.may_stop(limits.purse) and best < 0.0 else chosen


@implements(verbs.choose, EpsilonGreedy)
def _(rule, family, limits, rng, period, remaining):
    # Exploring in the last period could not pay.
    if remaining > 1 and random.uniform(rng) * (period + 1) < rule.rate:
        return np.int64(random.uniform(rng) * rule.num_arms)
    return verbs.best_mean(family, rule.num_arms)


@implements(verbs.choose, TSRatio)
def _(rule, family, limits, rng, period, remaining):
    verbs.draw_means(family, rng, rule.scores)
    chosen = -1
    best = 0.0
    for a in range(rule.costs.size):
        score = rule.scores[a] / rule.costs[a]
        if verbs.affordable(limits.purse, a) and (score > best or (score == best and chosen < 0)):
            best = score
            chosen = a
    return chosen


@implements(verbs.choose, TS)
def _(rule, family, limits, rng, period, remaining):
    verbs.draw_means(family, rng, rule.scores)
    return verbs.best_constant(limits.purse, rule.scores, remaining)


@implements(verbs.choose, FH)
def _(rule, family, limits, rng, period, remaining):
    periods = verbs.draw_periods(limits.end, rng, period, remaining)
    verbs.look_ahead(limits.delay, period)
    for a in range(rule.counts.size):
        pulls = verbs.purchases(limits.purse, a, periods)
        rule.counts[a] = verbs.in_time(limits.delay, rng, a, pulls, periods)
    verbs.draw_future_means(family, rng, rule.counts, rule.scores)
    return verbs.best_constant(limits.purse, rule.scores, remaining)
