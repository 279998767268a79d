"""The index along sampled futures of the conjugate families that are a sum and a count.

Families are told apart by their codes in `irsppl.inner.cpu.families`; where the code is a constant
of the caller, every branch on it is decided at compilation. Arrays are passed whole with the arm's
number: a slice costs an atomic reference count, which would be dearer than the step it serves.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Final

import numpy as np

from irsppl.inner.arrays import Floats, Words
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
def draw_step(code: int, family: Any, rng: Words, arm: int, n: int) -> None:
    """Draw reward number ``n`` of every future of one arm into ``futures[arm, n]`` [M].

    ``tail[arm]`` [M] holds each future's xi after the rewards drawn so far and is advanced;
    ``theta[arm]`` [M] holds the sampled parameters of the two Gamma families, filled at the first
    step.  Bernoulli and Gaussian rewards come from the predictive law, which needs no parameter.
    """
    nu, sd, tail, theta = family.nu[arm], family.sd[arm], family.tail, family.theta
    for j in range(family.futures.shape[2]):
        xi = tail[arm, j]
        if code == BETA_BERNOULLI:
            r = 1.0 if uniform(rng) * (nu + n) < xi else 0.0
        elif code == NORMAL_NORMAL:
            inv = 1.0 / (nu + n)
            r = xi * inv + sd * math.sqrt(1.0 + inv) * normal(rng)
        elif code == GAMMA_POISSON:
            if n == 0:
                theta[arm, j] = gamma(rng, xi) / nu
            r = float(poisson(rng, theta[arm, j]))
        else:
            if n == 0:
                theta[arm, j] = gamma(rng, nu + 1.0) / xi
            r = exponential(rng) / theta[arm, j]
        tail[arm, j] = xi + r
        family.futures[arm, n, j] = r
    family.drawn[arm] = n + 1


@njit(**KERNEL)
def draw_sum(
    code: int, family: Any, rng: Words, arm: int, xi: float, nu: float, at: int, n: int
) -> float:
    """Draw the sum of rewards ``at``, .., ``at + n - 1`` of the arm's only future.

    ``xi, nu``: the belief before them. Leaves ``tail`` and ``theta`` as `draw_step` would.
    """
    theta = family.theta
    if at == 0 or code < GAMMA_POISSON:
        earned = sample_sum(rng, code, xi, nu, family.sd[arm], n)
        # The sum first and then the parameter given it: together they have the same law.
        if code == GAMMA_POISSON:
            theta[arm, 0] = gamma(rng, xi + earned) / (nu + n)
        elif code > GAMMA_POISSON:
            theta[arm, 0] = gamma(rng, nu + n + 1.0) / (xi + earned)
    elif code == GAMMA_POISSON:
        earned = float(poisson(rng, n * theta[arm, 0]))
    else:
        earned = gamma(rng, float(n)) / theta[arm, 0]
    family.tail[arm, 0] = xi + earned
    return earned


@njit(**KERNEL, fastmath={"contract", "reassoc", "nsz"})
def worth_many(
    code: int,
    family: Any,
    rng: Words,
    arm: int,
    lam: float,
    horizon: int,
    star: bool,
    cursor: Any,
) -> bool:
    """Whether the mean of phi(lam) over ``futures[arm]`` [T, M] is >= 0.

    The futures advance together.  After each step every one of them has a best term so far, which
    its phi cannot fall below, and a bound that its phi cannot exceed; the scan stops when the
    sum of the former is non-negative or the sum of the latter is negative.  ``lanes`` [7, M] is
    scratch.
    """
    mean, e0, xi, nu, below, p = cursor
    sd, futures, lanes = family.sd[arm], family.futures, family.lanes
    num = futures.shape[2]
    xs = lanes[0]
    fs = lanes[1]
    ps = lanes[2]
    es = lanes[3]
    totals = lanes[4]
    bests = lanes[5]
    least = lanes[6]
    for j in range(num):
        xs[j] = xi
        fs[j] = below
        ps[j] = p
        least[j] = e0
        totals[j] = mean - lam
        # The first term of Index is at least this, whatever the future.
        bests[j] = _LOWEST if star else mean - lam
    slack = 1 if star else 0
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
            return False
        if lower >= 0.0:
            return True
        if n == horizon and not star:
            # The last term is D_n itself, which is then also the bound.
            return upper >= 0.0
        if family.drawn[arm] < n:
            draw_step(code, family, rng, arm, n - 1)
        inv = 1.0 / (nu + 1.0)
        if code == BETA_BERNOULLI:
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
                es[j] = expected_gain(code, xs[j], nu + 1.0, sd, lam)
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
    return lower >= 0.0


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
def advance_kept(family: Any, arm: int, reward: float) -> None:
    """Carry one arm's kept Beta values over a reward earned in its belief.

    The same one-step recurrence as along a sampled future.
    """
    kept, xi, nu = family.kept, family.xi[arm], family.nu[arm]
    for i in range(family.count[arm]):
        node = family.nodes[arm, i]
        lam = family.places[node]
        p = kept[arm, node, 1]
        if reward > 0.5:
            q = p / xi
            kept[arm, node, 0] -= q
            p = q * lam * nu
        else:
            q = p / (nu - xi)
            kept[arm, node, 0] += q
            p = q * (1.0 - lam) * nu
        kept[arm, node, 1] = max(p, TINY)
