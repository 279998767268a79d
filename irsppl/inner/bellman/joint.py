"""Correlated arms whose parameter takes finitely many values."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from irsppl.inner.arrays import Floats, Ints
from irsppl.inner.bellman import solution
from irsppl.inner.bellman.independent import (
    advance,
    check_dense,
    check_likelihood,
    check_values,
    steps,
)
from irsppl.inner.cpu.compiling import njit


@njit(cache=True, nogil=True)
def _joint(
    log_prior: Floats,
    likelihood: Floats,
    values: Floats,
    weights: Floats,
    bands: Floats,
    ranks: Ints,
    table: NDArray[np.int8],
    q: Floats,
) -> float:
    """Backward recursion with a joint posterior over J parameters, same layout as the above.

    The log-posterior of a row is summed once over all cells but the last two; a cell without
    counts is left out of the sum, so that an impossible category (log 0) does no harm before it
    is seen.  States of probability zero get value 0 and action 0.
    """
    num_particles, num_arms, num_categories = likelihood.shape
    cells = num_arms * num_categories
    horizon = weights.size
    top = cells - 2
    value = np.zeros(ranks[1, horizon + 1])
    log_lik = np.log(likelihood).reshape(num_particles, cells)
    step = np.empty(cells, np.int64)
    r = np.empty(cells, np.int64)
    row = np.empty(num_particles)
    post = np.empty(num_particles)
    p = np.empty(cells)
    for t in range(horizon - 1, -1, -1):
        w = weights[t]
        offset = ranks[0, t]
        r[0] = t
        for i in range(1, cells):
            r[i] = 0
        more = True
        while more:
            base = steps(r, ranks, top, step)
            for j in range(num_particles):
                row[j] = log_prior[j]
            for i in range(top):
                x = r[i] - r[i + 1]
                if x > 0:
                    for j in range(num_particles):
                        row[j] += x * log_lik[j, i]
            for v in range(r[top] + 1):
                x = r[top] - v
                largest = -np.inf
                for j in range(num_particles):
                    s = row[j]
                    if x > 0:
                        s += x * log_lik[j, top]
                    if v > 0:
                        s += v * log_lik[j, top + 1]
                    post[j] = s
                    largest = max(largest, s)
                best = 0.0
                action = 0
                if largest > -np.inf:
                    for i in range(cells):
                        p[i] = 0.0
                    total = 0.0
                    for j in range(num_particles):
                        mass = math.exp(post[j] - largest)
                        total += mass
                        for a in range(num_arms):
                            for c in range(num_categories):
                                p[a * num_categories + c] += mass * likelihood[j, a, c]
                    for a in range(num_arms):
                        current = 0.0
                        for c in range(num_categories):
                            i = a * num_categories + c
                            current += p[i] * (w * values[a, c] + value[base + v + step[i]])
                        current /= total
                        if t == 0:
                            q[a] = current
                        if a == 0 or current - best > bands[t]:
                            action = a
                        if a == 0 or current > best:
                            best = current
                value[base + v] = best
                table[offset + base + v] = action
            more = advance(r, top)
    return q.max()


def solve_joint(
    prior: ArrayLike,
    likelihood: ArrayLike,
    values: ArrayLike,
    horizon: int,
    weights: ArrayLike | None = None,
) -> solution.BellmanSolution:
    """Optimal value and policy when the arms share a parameter that takes J values.

    About 25 ns per state and parameter value, for few arms and categories.

    prior: ``[J]`` probabilities of the parameter's values; normalised here. likelihood: ``[J, K,
    C]``: the probability that arm ``a`` shows category ``c`` under value ``j``. values: ``[C]`` or
    ``[K, C]`` rewards of the categories. horizon, weights: as in :func:`solve_two_bernoulli`.
    """
    horizon = solution.check_horizon(horizon)
    w = solution.check_weights(weights, horizon)
    lik = np.ascontiguousarray(likelihood, dtype=np.float64)
    mass = np.asarray(prior, dtype=np.float64)
    if lik.ndim != 3 or lik.shape[2] < 2:
        raise ValueError(f"likelihood must be [J, K, C] with C >= 2, got shape {lik.shape}")
    check_likelihood(lik)
    if mass.shape != lik.shape[:1] or not (mass >= 0.0).all() or not 0.0 < mass.sum() < np.inf:
        raise ValueError(f"prior must be {lik.shape[0]} probabilities, got {prior!r}")
    keep = mass > 0.0
    lik = np.ascontiguousarray(lik[keep])
    log_prior = np.log(mass[keep] / mass.sum())
    _, num_arms, num_categories = lik.shape
    payoff = check_values(values, num_arms, num_categories)
    points = lik.shape[0]
    what = f"joint prior of {points} values"
    states = check_dense(what, horizon, num_arms, num_categories, points)
    ranks = solution.rank_table(horizon, num_arms * num_categories)
    table = np.empty(states, np.int8)
    q = np.empty(num_arms)
    bands = solution.tie_band(w, np.abs(payoff).max())
    value = _joint(log_prior, lik, payoff, w, bands, ranks, table, q)
    return solution.BellmanSolution(value, q, horizon, solution.DENSE, table, ranks)
