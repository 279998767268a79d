"""Information-directed sampling with 0/1 rewards.

Fixed nodes (`irsppl.engine.ids.nodes`), at which the CDFs are carried from reward to reward by
their one-step recurrence; between decisions only the tables of arms change of which a reward has
come in. The variable of integration is the logit of x, so densities are those of the logit.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from irsppl.engine import verbs
from irsppl.engine.ids.mixture import FLOOR, TINY, drawn, keep, minimise, moments, score
from irsppl.engine.ids.nodes import unit_nodes
from irsppl.engine.verbs import implements
from irsppl.inner.arrays import Floats
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.rng import KERNEL
from irsppl.inner.cpu.special import beta_start


class Bernoulli(NamedTuple):
    """n nodes; tables: CDF by recurrence, density, CDF, r = f / F and s = E[mu | mu <= x]."""

    form: int
    x: Floats  # [n]
    y: Floats  # [n] 1 - x
    weights: Floats  # [n]
    first: Floats  # [5, K, n] at the start
    first_state: Floats  # [2, K] xi and nu that they belong to
    tables: Floats  # [5, K, n]
    state: Floats  # [2, K]
    small: Floats  # [3, K] work array
    cross: Floats  # [K, K] work array
    lines: Floats  # [2, n] work array
    opening: Floats  # [3] the first mixture: arms i, j, probability of i; i < 0: new
    mixture: Floats  # [3] that of the state now


def bernoulli_rule(form: int, xi: Any, nu: Any, pulls: int) -> Bernoulli:
    """Arms xi, nu [K] that are pulled so many times at most."""
    state = np.array([xi, nu], np.float64)
    x, y, weights, beyond = unit_nodes(state[0], state[1] - state[0], pulls)
    arms = state.shape[1]
    tables = np.empty((5, arms, x.size))
    for a in range(arms):
        _beta_tables(*state[:, a], x, y, beyond, tables[0, a], tables[1, a])
        _beta_derive(*state[:, a], x, *tables[:, a])
    nodes, now = (x, y, weights), (tables.copy(), state.copy())
    work = (np.empty((3, arms)), np.empty((arms, arms)), np.empty((2, x.size)))
    none = (np.full(3, -1.0), np.full(3, -1.0))
    return Bernoulli(form, *nodes, tables, state, *now, *work, *none)


@njit(**KERNEL)
def _beta_tables(
    xi: float, nu: float, x: Floats, y: Floats, beyond: Floats, below: Floats, p: Floats
) -> None:
    """CDF and x^a (1-x)^b / B(a, b) of one arm at the nodes, each from the end that it is near.

    Nodes so close to it that x (or y) is no number have both of them by the power law there.
    """
    for j in range(x.size):
        left = x[j] <= 0.5
        a = xi if left else nu - xi
        tail, q = beta_start(a, nu - a, x[j] if left else y[j])
        further = math.exp(a * beyond[j])
        tail *= further
        below[j] = tail if left else 1.0 - tail
        p[j] = max(q * further, TINY)


@njit(**KERNEL, fastmath={"contract"})
def _beta_advance(
    reward: float, xi: float, nu: float, x: Floats, y: Floats, below: Floats, p: Floats
) -> None:
    """Carry one arm's tables over a reward earned in belief (xi, nu)."""
    if reward > 0.5:
        inv = 1.0 / xi
        for j in range(x.size):
            q = p[j] * inv
            below[j] -= q
            q *= x[j] * nu
            p[j] = q if q > TINY else TINY
    else:
        inv = 1.0 / (nu - xi)
        for j in range(x.size):
            q = p[j] * inv
            below[j] += q
            q *= y[j] * nu
            p[j] = q if q > TINY else TINY


@njit(**KERNEL, fastmath={"contract", "arcp"})
def _beta_derive(
    xi: float,
    nu: float,
    x: Floats,
    below: Floats,
    p: Floats,
    cdf: Floats,
    r: Floats,
    s: Floats,
) -> None:
    """One arm's ``r = f / F`` and ``s = E[mu | mu <= x]``.

    The recurrence leaves F in the left tail as rounding error of either sign.  Any positive value
    will do there: ``r`` times the product of the CDFs cancels it, and ``s`` is kept in [0, x].
    """
    mean = xi / nu
    inv = 1.0 / xi
    for j in range(x.size):
        f = below[j]
        f = f if f > FLOOR else FLOOR
        cdf[j] = f
        f = 1.0 / f
        r[j] = p[j] * f
        given = mean * (1.0 - p[j] * inv * f)
        given = given if given > 0.0 else 0.0
        s[j] = given if given < x[j] else x[j]


@njit(**KERNEL)
def beta_mixture(rule: Bernoulli) -> tuple[int, int, float]:
    """Arms i, j and the probability of i."""
    count = rule.state.shape[1]
    prob, delta, gain = rule.small[0], rule.small[1], rule.small[2]
    cdf, r, s = rule.tables[2], rule.tables[3], rule.tables[4]
    sure = moments(
        count, rule.x.size, rule.x, rule.weights, cdf, r, s, prob, rule.cross, rule.lines
    )
    if sure >= 0:
        return sure, sure, 1.0
    score(rule.form, count, prob, rule.cross, delta, gain)
    return minimise(delta, gain, count)


@implements(verbs.reset, Bernoulli)
def _(part):
    for a in range(part.state.shape[1]):
        if part.state[1, a] > part.first_state[1, a]:
            for i in range(5):
                for j in range(part.x.size):
                    part.tables[i, a, j] = part.first[i, a, j]
            for i in range(2):
                part.state[i, a] = part.first_state[i, a]
    for i in range(3):
        part.mixture[i] = part.opening[i]


@implements(verbs.choose, Bernoulli)
def _(rule, family, limits, rng, period, remaining):
    if remaining == 1:
        return verbs.best_mean(family, family.xi.size)  # information could not pay
    state, tables = rule.state, rule.tables
    opening = True
    for a in range(family.xi.size):
        xi, nu = state[0, a], state[1, a]
        below, p = tables[0, a], tables[1, a]
        while nu < family.nu[a] - 0.5:
            reward = 1.0 if xi < family.xi[a] - 0.5 else 0.0
            _beta_advance(reward, xi, nu, rule.x, rule.y, below, p)
            xi += reward
            nu += 1.0
        if nu > state[1, a]:
            rule.mixture[0] = -1.0
            state[0, a], state[1, a] = xi, nu
            cdf, r, s = tables[2, a], tables[3, a], tables[4, a]
            _beta_derive(xi, nu, rule.x, below, p, cdf, r, s)
        opening = opening and nu == rule.first_state[1, a]
    if rule.mixture[0] < 0.0:
        keep(rule, beta_mixture(rule), opening)
    return drawn(rule.mixture, rng)
