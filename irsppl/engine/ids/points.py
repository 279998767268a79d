"""Information-directed sampling with beliefs made of points, by variance.

Independent arms: the range of the means is cut into cells, in which the other arms' CDFs are taken
at their average (as in `irsppl.policies.ids`). Joint points say themselves which arm is best.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from irsppl.engine import verbs
from irsppl.engine.families.joint import JointPoints
from irsppl.engine.families.points import Points
from irsppl.engine.ids.mixture import TINY, VARIANCE, minimise, score
from irsppl.engine.verbs import implements, stateless, verb
from irsppl.inner.arrays import Floats
from irsppl.inner.cpu import rng as random
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.rng import KERNEL
from irsppl.policies.ids import CELLS


class OfPoints(NamedTuple):
    """K arms; all but the first are work arrays."""

    cells: Floats  # [C] edges of cells in standard deviations from an arm's mean
    prob: Floats  # [K] that the arm is best
    cross: Floats  # [K, K] E[mu_a; b is best], as [b, a]
    terms: Floats  # [2, K] regret and information
    heads: Floats  # [2, K] two numbers of each arm
    edges: Floats  # [E], E = K C
    below: Floats  # [K, E] P(mu_a <= edge)
    partial: Floats  # [K, E] E[mu_a; mu_a <= edge]


stateless(OfPoints)


def points_rule(arms: int) -> OfPoints:
    cells = np.array(CELLS, np.float64)
    small = (np.empty(arms), np.empty((arms, arms)), np.empty((2, arms)), np.empty((2, arms)))
    size = arms * cells.size
    large = np.empty(size), np.empty((arms, size)), np.empty((arms, size))
    return OfPoints(cells, *small, *large)


@verb
def _moments(family: Any, rule: OfPoints) -> None:
    """``prob`` and ``cross`` of the belief now."""


@njit(**KERNEL)
def _lay_edges(family: Points, rule: OfPoints) -> None:
    """Edges of all arms' cells, rising."""
    arms, count = rule.prob.size, rule.cells.size
    for a in range(arms):
        square, mean = 0.0, family.means[a]
        for j in range(family.span[a, 0], family.span[a, 1]):
            off = family.mu[a, j] - mean
            square += family.weights[a, j] * off * off
        total = family.sums[a, family.sums.shape[1] - 1]
        rule.heads[0, a], rule.heads[1, a] = 0.0, math.sqrt(square / total)
    for i in range(rule.edges.size):
        lowest, best = np.inf, 0
        for a in range(arms):
            at = np.int64(rule.heads[0, a])
            if at < count:
                edge = family.means[a] + rule.heads[1, a] * rule.cells[at]
                if edge < lowest:
                    lowest, best = edge, a
        rule.edges[i] = lowest
        rule.heads[0, best] += 1.0


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
    _lay_edges(family, rule)
    arms, last = rule.prob.size, rule.edges.size - 1
    for a in range(arms):
        total = family.sums[a, family.sums.shape[1] - 1]
        weights, mu = family.weights[a], family.mu[a]
        _sum_up(mu, weights, total, rule.edges, rule.below[a], rule.partial[a])
    rule.prob[:] = 0.0
    rule.cross[:] = 0.0
    floor = rule.edges[0]
    for i in range(last):
        left, right = rule.edges[i], rule.edges[i + 1]
        for a in range(arms):  # averages of the other arms
            average = max((rule.below[a, i + 1] + rule.below[a, i]) / 2.0, TINY)
            given = (rule.partial[a, i + 1] + rule.partial[a, i]) / 2.0 / average
            rule.heads[0, a], rule.heads[1, a] = average, min(max(given, floor), right)
        for b in range(arms):
            mass = rule.below[b, i + 1] - rule.below[b, i]
            if mass <= 0.0:
                continue
            inside = (rule.partial[b, i + 1] - rule.partial[b, i]) / mass
            for a in range(arms):
                if a != b:
                    mass *= rule.heads[0, a]
            rule.prob[b] += mass
            for a in range(arms):
                own = min(max(inside, left), right)
                rule.cross[b, a] += mass * (own if a == b else rule.heads[1, a])


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
