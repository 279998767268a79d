"""Information-directed sampling with beliefs made of points, by variance.

Independent arms: the line is cut into cells between points, all of them where an arm has few, in
which the arms' CDFs rise together (as in `irsppl.policies.ids`). Joint points say themselves which
arm is best.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from irsppl.engine import verbs
from irsppl.engine.families.joint import JointPoints
from irsppl.engine.families.points import Points
from irsppl.engine.ids.mixture import FLOOR, VARIANCE, minimise, score
from irsppl.engine.verbs import implements, stateless, verb
from irsppl.inner.arrays import Floats
from irsppl.inner.cpu import rng as random
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.rng import KERNEL
from irsppl.policies.ids import MOST_POINTS, POINT_LEVELS, shared_nodes


class OfPoints(NamedTuple):
    """K arms, up to C edges of each; all but the first two are work arrays."""

    levels: Floats  # quantiles at which arms of many points have their edges
    shared: Floats  # [arms with mass in a cell - 1, nodes or weights, 4]
    prob: Floats  # [K] that the arm is best
    cross: Floats  # [K, K] E[mu_a; b is best], as [b, a]
    terms: Floats  # [2, K] regret and information
    heads: Floats  # [2, K] two numbers of each arm
    chosen: Floats  # [K, C] the arm's own edges, rising, then infinity
    edges: Floats  # [K C]
    below: Floats  # [K, K C] P(mu_a <= edge)
    partial: Floats  # [K, K C] E[mu_a; mu_a <= edge]


stateless(OfPoints)


def points_rule(arms: int) -> OfPoints:
    most = max(MOST_POINTS, len(POINT_LEVELS) + 1) + 1
    shared = np.zeros((arms, 2, 4))
    for a in range(arms):
        nodes, weights = shared_nodes(a + 1)
        shared[a, 0, : nodes.size], shared[a, 1, : nodes.size] = nodes, weights
    small = (np.empty(arms), np.empty((arms, arms)), np.empty((2, arms)), np.empty((2, arms)))
    size = arms * most
    large = np.empty(size), np.empty((arms, size)), np.empty((arms, size))
    return OfPoints(np.array(POINT_LEVELS), shared, *small, np.empty((arms, most)), *large)


@verb
def _moments(family: Any, rule: OfPoints) -> None:
    """``prob`` and ``cross`` of the belief now."""


@njit(**KERNEL)
def _choose_edges(mu: Floats, weights: Floats, total: float, levels: Floats, chosen: Floats) -> int:
    """One arm's own edges, and how many: all its points, or those at the levels and the last."""
    count = 0
    if mu.size <= MOST_POINTS:
        for j in range(mu.size):
            if weights[j] > 0.0:
                chosen[count] = mu[j]
                count += 1
    else:
        mass, level = 0.0, 0
        for j in range(mu.size):
            mass += weights[j]
            if level < levels.size and mass >= levels[level] * total:
                chosen[count] = mu[j]
                count += 1
                while level < levels.size and mass >= levels[level] * total:
                    level += 1
        chosen[count] = mu[mu.size - 1]
        count += 1
    chosen[count] = np.inf
    return count


@njit(**KERNEL)
def _lay_edges(family: Points, rule: OfPoints) -> int:
    """All arms' edges, rising and each of them once; returns how many."""
    arms, heads = rule.prob.size, rule.heads[0]
    for a in range(arms):
        first, last = family.span[a, 0], family.span[a, 1]
        mu, weights = family.mu[a, first:last], family.weights[a, first:last]
        total = family.sums[a, family.sums.shape[1] - 1]
        _choose_edges(mu, weights, total, rule.levels, rule.chosen[a])
        heads[a] = 0.0
    count = 0
    while True:
        lowest = np.inf
        for a in range(arms):
            lowest = min(lowest, rule.chosen[a, np.int64(heads[a])])
        if lowest == np.inf:
            return count
        rule.edges[count] = lowest
        count += 1
        for a in range(arms):
            while rule.chosen[a, np.int64(heads[a])] == lowest:
                heads[a] += 1.0


@njit(**KERNEL)
def _sum_up(
    mu: Floats, weights: Floats, total: float, edges: Floats, below: Any, partial: Any
) -> None:
    """CDF and partial means of one arm at the edges."""
    point, mass, first = 0, 0.0, 0.0
    for i in range(edges.size):
        while point < mu.size and mu[point] <= edges[i]:
            mass += weights[point]
            first += weights[point] * mu[point]
            point += 1
        below[i], partial[i] = mass / total, first / total


@implements(_moments, Points)
def _(family, rule):
    count, arms = _lay_edges(family, rule), rule.prob.size
    for a in range(arms):
        total = family.sums[a, family.sums.shape[1] - 1]
        first, last = family.span[a, 0], family.span[a, 1]
        mu, weights = family.mu[a, first:last], family.weights[a, first:last]
        _sum_up(mu, weights, total, rule.edges[:count], rule.below[a], rule.partial[a])
    rule.prob[:] = 0.0
    rule.cross[:] = 0.0
    for i in range(count):
        _add_cell(rule, i)


@njit(**KERNEL)
def _add_cell(rule: OfPoints, i: int) -> None:
    """The cell that ends at edge i, in which all arms' CDFs and partial means rise together."""
    arms, below, partial = rule.prob.size, rule.below, rule.partial
    active = 0
    for b in range(arms):
        if below[b, i] > (below[b, i - 1] if i > 0 else 0.0):
            active += 1
    if active == 0:
        return
    nodes, weights = rule.shared[active - 1]
    cdf, given = rule.heads[0], rule.heads[1]
    for k in range(nodes.size):
        if weights[k] == 0.0:
            break
        product = weights[k]
        for a in range(arms):
            mass, first = below[a, i], partial[a, i]
            if i > 0:
                mass = below[a, i - 1] + nodes[k] * (mass - below[a, i - 1])
                first = partial[a, i - 1] + nodes[k] * (first - partial[a, i - 1])
            else:
                mass, first = nodes[k] * mass, nodes[k] * first
            cdf[a] = max(mass, FLOOR)
            given[a] = first / cdf[a]
            product *= cdf[a]
        for b in range(arms):
            mass, first = below[b, i], partial[b, i]
            if i > 0:
                mass, first = mass - below[b, i - 1], first - partial[b, i - 1]
            if mass > 0.0:
                others = product / cdf[b]
                rule.prob[b] += mass * others
                for a in range(arms):
                    rule.cross[b, a] += others * (first if a == b else mass * given[a])


@implements(_moments, JointPoints)
def _(family, rule):
    arms = rule.prob.size
    rule.prob[:] = 0.0
    rule.cross[:] = 0.0
    for j in range(family.weights.size):
        weight, best = family.weights[j], 0
        if weight > 0.0:
            for a in range(1, arms):
                if family.mu[a, j] > family.mu[best, j]:
                    best = a
            rule.prob[best] += weight
            for a in range(arms):
                rule.cross[best, a] += weight * family.mu[a, j]


@implements(verbs.choose, OfPoints)
def _(rule, family, limits, rng, period, remaining):
    arms = rule.prob.size
    if remaining == 1:
        return verbs.best_mean(family, arms)  # information could not pay
    _moments(family, rule)
    score(VARIANCE, arms, rule.prob, rule.cross, rule.terms[0], rule.terms[1])
    first, second, share = minimise(rule.terms[0], rule.terms[1], arms)
    return first if first == second or random.uniform(rng) < share else second
