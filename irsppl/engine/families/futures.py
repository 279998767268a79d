"""The index along sampled futures of the conjugate families that are a sum and a count.

Families are told apart by their codes in `irsppl.inner.cpu.families`; where the code is a constant
of the caller, every branch on it is decided at compilation. Arrays are passed whole with the arm's
number: a slice costs an atomic reference count, which would be dearer than the step it serves.
"""

from __future__ import annotations

import functools
import math
from typing import Final

import numpy as np

from irsppl.inner.arrays import Floats, Ints, Words
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.families import (
    BETA_BERNOULLI,
    GAMMA_POISSON,
    NORMAL_NORMAL,
    sample_sum,
)
from irsppl.inner.cpu.rng import KERNEL, exponential, gamma, normal, poisson, uniform
from irsppl.inner.cpu.special import TINY, expected_gain

# Nodes of the bisection tree, numbered like a heap, whose Beta values are kept between decisions.
CACHED_NODES: Final = 512
_LOWEST: Final = -1e300


@njit(**KERNEL)
def bracket(family: int, xi: Floats, nu: Floats, sd: Floats, horizon: int) -> tuple[float, float]:
    """Interval that the bisection for arms ``xi, nu, sd`` [K] starts from.

    [0, 1] for Bernoulli rewards, otherwise from the lowest mean to a point above every index:
    beyond mean + d no arm is worth trying once ``horizon * E[(mu - mean - d)^+] < d``.
    """
    if family == BETA_BERNOULLI:
        return 0.0, 1.0
    lo = xi[0] / nu[0]
    hi = lo
    for a in range(xi.shape[0]):
        m = xi[a] / nu[a]
        lo = min(lo, m)
        if family == NORMAL_NORMAL:
            # T phi(x) < x^3 at x = sqrt(2 log T), hence T E[(Z - x)^+] < x.
            d = sd[a] / math.sqrt(nu[a]) * max(1.0, math.sqrt(2.0 * math.log(horizon)))
        else:
            d = m / math.sqrt(nu[a])
            while horizon * expected_gain(family, xi[a], nu[a], sd[a], m + d) >= d:
                d *= 2.0
        hi = max(hi, m + d)
    return lo, hi


@njit(**KERNEL)
def draw_step(
    family: int,
    arm: int,
    nu: float,
    sd: float,
    n: int,
    futures: Floats,
    tail: Floats,
    theta: Floats,
    state: Words,
) -> None:
    """Draw reward number ``n`` of every future of one arm into ``futures[arm, n]`` [M].

    ``tail[arm]`` [M] holds each future's xi after the rewards drawn so far and is advanced;
    ``theta[arm]`` [M] holds the sampled parameters of the two Gamma families, filled at the first
    step.  Bernoulli and Gaussian rewards come from the predictive law, which needs no parameter.
    """
    for j in range(futures.shape[2]):
        xi = tail[arm, j]
        if family == BETA_BERNOULLI:
            r = 1.0 if uniform(state) * (nu + n) < xi else 0.0
        elif family == NORMAL_NORMAL:
            inv = 1.0 / (nu + n)
            r = xi * inv + sd * math.sqrt(1.0 + inv) * normal(state)
        elif family == GAMMA_POISSON:
            if n == 0:
                theta[arm, j] = gamma(state, xi) / nu
            r = float(poisson(state, theta[arm, j]))
        else:
            if n == 0:
                theta[arm, j] = gamma(state, nu + 1.0) / xi
            r = exponential(state) / theta[arm, j]
        tail[arm, j] = xi + r
        futures[arm, n, j] = r


@njit(**KERNEL)
def draw_sum(
    family: int,
    arm: int,
    xi: float,
    nu: float,
    sd: float,
    at: int,
    n: int,
    tail: Floats,
    theta: Floats,
    state: Words,
) -> float:
    """Draw the sum of rewards ``at``, .., ``at + n - 1`` of the arm's only future.

    ``xi, nu``: the belief before them. Leaves ``tail`` and ``theta`` as `draw_step` would.
    """
    if at == 0 or family < GAMMA_POISSON:
        earned = sample_sum(state, family, xi, nu, sd, n)
        # The sum first and then the parameter given it: together they have the same law.
        if family == GAMMA_POISSON:
            theta[arm, 0] = gamma(state, xi + earned) / (nu + n)
        elif family > GAMMA_POISSON:
            theta[arm, 0] = gamma(state, nu + n + 1.0) / (xi + earned)
    elif family == GAMMA_POISSON:
        earned = float(poisson(state, n * theta[arm, 0]))
    else:
        earned = gamma(state, float(n)) / theta[arm, 0]
    tail[arm, 0] = xi + earned
    return earned


@njit(**KERNEL, fastmath={"contract", "reassoc", "nsz"})
def worth_many(
    family: int,
    star: bool,
    arm: int,
    xi: float,
    nu: float,
    sd: float,
    lam: float,
    horizon: int,
    e0: float,
    below: float,
    p: float,
    futures: Floats,
    drawn: int,
    tail: Floats,
    theta: Floats,
    state: Words,
    lanes: Floats,
) -> tuple[bool, int]:
    """Whether the mean of phi(lam) over ``futures[arm]`` [T, M] is >= 0.

    The futures advance together.  After each step every one of them has a best term so far, which
    its phi cannot fall below, and a bound that its phi cannot exceed; the scan stops when the
    sum of the former is non-negative or the sum of the latter is negative.  ``lanes`` [7, M] is
    scratch.
    """
    num = futures.shape[2]
    xs = lanes[0]
    fs = lanes[1]
    ps = lanes[2]
    es = lanes[3]
    totals = lanes[4]
    bests = lanes[5]
    least = lanes[6]
    mean = xi / nu
    for j in range(num):
        xs[j] = xi
        fs[j] = below
        ps[j] = p
        least[j] = e0
        totals[j] = mean - lam
        # The first term of Index is at least this, whatever the future.
        bests[j] = _LOWEST if star else mean - lam
    slack = 1 if star else 0
    nu0 = nu
    for n in range(1, horizon + 1):
        # Here totals[j] is D_n and bests[j] the best term before n.
        room = (horizon - n + slack) * e0
        lower = 0.0
        upper = 0.0
        for j in range(num):
            bound = totals[j] + room
            best = bests[j]
            lower += best
            upper += bound if bound > best else best
        if upper < 0.0:
            return False, drawn
        if lower >= 0.0:
            return True, drawn
        if n == horizon and not star:
            # The last term is D_n itself, which is then also the bound.
            return upper >= 0.0, drawn
        if drawn < n:
            draw_step(family, arm, nu0, sd, n - 1, futures, tail, theta, state)
            drawn = n
        inv = 1.0 / (nu + 1.0)
        if family == BETA_BERNOULLI:
            for j in range(num):
                x = xs[j]
                success = futures[arm, n - 1, j] > 0.5
                q = ps[j] / (x if success else nu - x)
                below_j = fs[j] - (q if success else -q)
                p_j = q * nu * (lam if success else 1.0 - lam)
                p_j = p_j if p_j > TINY else TINY
                x += 1.0 if success else 0.0
                fs[j] = below_j
                ps[j] = p_j
                xs[j] = x
                es[j] = (x * inv - lam) * (1.0 - below_j) + p_j * inv
        else:
            for j in range(num):
                xs[j] += futures[arm, n - 1, j]
                es[j] = expected_gain(family, xs[j], nu + 1.0, sd, lam)
        nu += 1.0
        scale = float(horizon - n)
        for j in range(num):
            e = es[j]
            low = least[j]
            low = low if low < e else e
            least[j] = low
            term = totals[j] + (e0 - e if star else scale * (e0 - low))
            best = bests[j]
            bests[j] = term if term > best else best
            totals[j] += xs[j] * inv - lam + (e0 - e)
    lower = 0.0
    for j in range(num):
        lower += bests[j]
    return lower >= 0.0, drawn


@functools.cache  # asked for at every decision of an experiment; nobody writes into it
def node_places(count: int) -> Floats:
    """``lam`` of each node of the bisection tree over [0, 1]; node i has children 2i, 2i + 1."""
    places = np.zeros(count)
    half = 1
    for node in range(1, count):
        if node == 2 * half:
            half = node
        places[node] = (2 * (node - half) + 1) / (2.0 * half)
    return places


@njit(**KERNEL)
def advance_kept(
    kept: Floats, nodes: Ints, places: Floats, xi: float, nu: float, reward: float
) -> None:
    """Carry one arm's kept Beta values over a reward earned in belief (xi, nu).

    ``kept`` [nodes, 2]; the same one-step recurrence as along a sampled future.
    """
    for i in range(nodes.shape[0]):
        node = nodes[i]
        lam = places[node]
        p = kept[node, 1]
        if reward > 0.5:
            q = p / xi
            kept[node, 0] -= q
            p = q * lam * nu
        else:
            q = p / (nu - xi)
            kept[node, 0] += q
            p = q * (1.0 - lam) * nu
        kept[node, 1] = max(p, TINY)
