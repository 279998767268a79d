"""OGI: the optimistic Gittins index with one step of look-ahead (Farias and Gutin, 2022).

lam = (1 - g) m + g E[max(mu, lam)] with g = 1 - 1/t, the same as lam - m = (t - 1) E[(mu - lam)^+].
Only the largest index is wanted: an arm's is solved for only if its gain at the best so far says
that it is larger.
"""

from __future__ import annotations

import functools
import math
from typing import Final, NamedTuple

import numpy as np

from irsppl.engine import verbs
from irsppl.engine.families.linear import LinearGaussian
from irsppl.engine.families.natural import NormalNormal
from irsppl.engine.verbs import by_default, implements, verb
from irsppl.inner.arrays import Floats
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.rng import KERNEL
from irsppl.inner.cpu.special import normal_excess

# Arms whose index is this close (relative to the scale of the equation) to the best so far count as
# equal to it, so that rounding does not break ties.
_TIE: Final = 1e-12
_SQRT2: Final = math.sqrt(2.0)


class OGI(NamedTuple):
    """Each arm's last solved index, from which a search for the next begins."""

    warm: Floats  # [K]
    normal: Floats  # the standard normal's own index by t, where it is wanted


@njit(**KERNEL)
def normal_index(weight: float) -> float:
    """c with c = weight E[(Z - c)^+], Z standard normal: the Gaussian index is m + c v."""
    c = 0.0
    for _ in range(200):
        step = (c - weight * normal_excess(c)) / (1.0 + 0.5 * weight * math.erfc(c / _SQRT2))
        c = max(c - step, 0.0)
        if abs(step) <= 1e-14:
            break
    return c


@functools.lru_cache(maxsize=8)
def normal_indices(periods: int) -> Floats:
    """Index of a standard normal mean for t = 0, .., periods (0 where there is none)."""
    return np.array([normal_index(t - 1.0) if t > 1 else 0.0 for t in range(periods + 1)])


@verb
def ogi_index(family, arm, weight, offset, floor, start):
    """The arm's index, or ``floor`` where it is no larger. Gaussian families have code of their
    own; all others are asked for `gain` and `highest`."""


@implements(ogi_index, NormalNormal, LinearGaussian)
def _(family, arm, weight, offset, floor, start):
    return verbs.mean(family, arm) + verbs.mean_sd(family, arm) * offset


@by_default(ogi_index)
def _(family, arm, weight, offset, floor, start):
    m = verbs.mean(family, arm)
    if floor > m:
        gain, _ = verbs.gain(family, arm, floor)
        if weight * gain <= (floor - m) * (1.0 + _TIE):
            return floor
    # Newton's method. The difference of the two sides is increasing and concave: every step ends
    # left of the root, and from there the steps climb to it without overshooting.
    lam = max(start, m)
    if lam >= verbs.highest(family, arm):
        lam = m
    for _ in range(200):
        gain, above = verbs.gain(family, arm, lam)
        step = (lam - m - weight * gain) / (1.0 + weight * above)
        new = max(lam - step, m)
        if abs(new - lam) <= 1e-14 * max(abs(lam), abs(m)):
            return new
        lam = new
    return lam


@implements(verbs.reset, OGI)
def _(part):
    part.warm[:] = 0.0


@implements(verbs.choose, OGI)
def _(rule, family, limits, rng, period, remaining):
    warm = rule.warm
    weight, offset = float(period), rule.normal[min(period + 1, rule.normal.size - 1)]
    chosen = 0
    best = -np.inf
    for a in range(warm.size):
        if period == 0:
            score = verbs.mean(family, a)
        else:
            score = ogi_index(family, a, weight, offset, best, max(best, warm[a]))
        if score > best:
            best = score
            chosen = a
            warm[a] = score
    return chosen
