"""Rules that look up what to do in tables by what has been seen: OPT, FH-Gittins, Lagrangian."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irsppl.engine import verbs
from irsppl.engine.verbs import implements, stateless
from irsppl.inner import bellman
from irsppl.inner.arrays import Ints, Singles
from irsppl.inner.cpu import rng as random


class Optimal(NamedTuple):
    """The policy table of `irsppl.inner.bellman.BellmanSolution`."""

    kind: int
    table: NDArray
    ranks: Ints


class Gittins(NamedTuple):
    """Tables of `irsppl.inner.gittins.index_table`, one row per distinct prior."""

    index: Singles  # [G, states]
    group: Ints  # [K] row of each arm


class Lagrangian(NamedTuple):
    """Tables of `irsppl.inner.lagrangian.LagrangianTables`."""

    index: Singles  # [G, states]
    pull: Singles  # [G, states]
    group: Ints  # [K]
    tolerance: float  # indices this close to the largest count as tied
    optimal: bool  # ties follow the relaxation's optimal mixture
    places: Ints  # [K] work array


stateless(Optimal, Gittins, Lagrangian)


@implements(verbs.choose, Optimal)
def _(rule, family, limits, rng, period, remaining):
    return bellman.lookup(rule.kind, rule.table, rule.ranks, family.now)


@implements(verbs.choose, Gittins)
def _(rule, family, limits, rng, period, remaining):
    chosen = 0
    best = np.float32(-np.inf)
    for a in range(rule.group.size):
        wins = family.now[2 * a + 1]
        n = family.now[2 * a] + wins
        total = n + remaining
        place = (total - 1) * total * (total + 1) // 6 + n * (n + 1) // 2 + wins
        index = rule.index[rule.group[a], place]
        # Selected, not branched on: rewards are what a branch predictor cannot guess.
        better = index > best
        best = index if better else best
        chosen = a if better else chosen
    return chosen


@implements(verbs.choose, Lagrangian)
def _(rule, family, limits, rng, period, remaining):
    # Random numbers are drawn only where arms tie.
    index, group, places = rule.index, rule.group, rule.places
    t = 0
    for i in range(family.now.size):
        t += family.now[i]
    block = t * (t + 1) * (t + 2) // 6
    best = -np.inf
    for a in range(group.size):
        wins = family.now[2 * a + 1]
        n = family.now[2 * a] + wins
        places[a] = block + n * (n + 1) // 2 + wins
        best = max(best, index[group[a], places[a]])
    tied = 0
    choice = 0
    for a in range(group.size):
        if index[group[a], places[a]] >= best - rule.tolerance:
            tied += 1
            choice = a
    if tied == 1:
        return choice
    top = -1.0
    for a in range(group.size):
        if index[group[a], places[a]] >= best - rule.tolerance:
            score = random.uniform(rng)
            if rule.optimal and random.uniform(rng) < rule.pull[group[a], places[a]]:
                score += 1.0
            if score > top:
                top = score
                choice = a
    return choice
