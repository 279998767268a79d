"""Nodes on [0, 1] for integrals over Beta beliefs.

Integrals are taken in the logit of x, whose element dx / (x (1 - x)) leaves x^alpha (1-x)^beta of a
Beta density: no prior is infinite there. Nodes that lie even in the angle whose squared sine is x
are equally fine for beliefs of one strength, wherever their mean is.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from irsppl.inner.arrays import Floats

_BLOCK: Final = 8
# Above this size one Gauss rule for all of [0, 1] is left for panels: it takes long to find, and
# strong priors want its density in few places only.
_LARGEST: Final = 512
# Nodes of a panel, and its length in standard deviations of the narrowest belief: as dense as the
# one rule.
_PANEL: Final = 16
_LENGTH: Final = 9.0
# Standard deviations from the means at which beliefs are cut.
_REACH: Final = 9.0
# Ends at which a belief may be this flat in the angle are resolved in the logarithm instead: the
# one rule has so many nodes there that it needs this less often than panels do.
_FLAT: Final = 0.5
_FLAT_PANELS: Final = 1.0
# Panels towards such an end in log x: the first one's length, how much longer the next one is, and
# the logarithm of the probability beyond the last.
_FIRST: Final = 2.0
_GROWTH: Final = 3.0
_BEYOND: Final = 28.0
# Numbers of x and 1 - x stay above this; Beta laws are powers long before.
_LOG_LEAST: Final = -460.0


class Nodes(NamedTuple):
    """n nodes; the mean is x and 1 - x is y, which near 1 is not to be had from x."""

    x: Floats  # [n] at least exp(-460)
    y: Floats  # [n] at least exp(-460)
    weights: Floats  # [n] of the logit
    beyond: Floats  # [n] logarithm of the true x (or y) less that of x (or y), not positive


def unit_nodes(alpha: Floats, beta: Floats, pulls: int) -> Nodes:
    """Nodes that resolve every belief met within ``pulls`` more rewards of arms alpha, beta [K].

    Near 1/2, where they are widest apart, nodes lie at most 0.9 standard deviations of the
    narrowest belief apart.
    """
    strongest = float(np.max(alpha + beta)) + pulls
    least = float(np.min(alpha)), float(np.min(beta))
    tame = min(least) >= 1.0
    density = 3.5 if tame else 5.5
    size = max(48, _BLOCK * math.ceil(density * math.sqrt(strongest) / _BLOCK))
    one = size <= _LARGEST
    if one and tame:  # polynomials in x, or nearly so
        nodes, weights = _gauss(size)
        x, y = 0.5 * (1.0 + nodes), 0.5 * (1.0 - nodes)
        return Nodes(x, y, 0.5 * weights / (x * y), np.zeros(size))
    flat = [end < (_FLAT if one else _FLAT_PANELS) for end in least]
    margin = math.asin(math.sqrt(1.0 / (strongest + 1.0)))
    low, high = margin if flat[0] else 0.0, 0.5 * math.pi - (margin if flat[1] else 0.0)
    edges = [(low, high)] if one else _panels(alpha, beta, pulls, low, high, flat)
    nodes, weights = _gauss(size if one else _PANEL)
    left, right = np.array(edges).T[:, :, None]
    half = 0.5 * (right - left)
    angle, weights = (left + half * (1.0 + nodes)).ravel(), (half * weights).ravel()
    middle = Nodes(
        np.sin(angle) ** 2,
        np.cos(angle) ** 2,
        4.0 * weights / np.sin(2.0 * angle),
        np.zeros(angle.size),
    )
    parts = [middle]
    if flat[0]:
        parts.insert(0, _towards_zero(low, least[0]))
    if flat[1]:
        end = _towards_zero(margin, least[1])
        parts.append(Nodes(end.y, end.x, end.weights, end.beyond))
    return Nodes(*(np.concatenate(each) for each in zip(*parts, strict=True)))


@lru_cache(maxsize=64)
def _gauss(size: int) -> tuple[Floats, Floats]:
    return np.polynomial.legendre.leggauss(size)


def _panels(
    alpha: Floats, beta: Floats, pulls: int, low: float, high: float, flat: list[bool]
) -> list[tuple[float, float]]:
    """Panels of the angle between low and high where some arm may have its belief.

    Each is as short as the arms want that may have theirs there. Towards a flat end they are no
    longer than their distance to it.
    """
    count = alpha + beta
    spread = 0.5 * _REACH / np.sqrt(count)
    starts = np.arcsin(np.sqrt(alpha / (count + pulls))) - spread
    ends = np.arcsin(np.sqrt((alpha + pulls) / (count + pulls))) + spread
    longest = 0.5 * _LENGTH / np.sqrt(count + pulls)
    found, place = [], max(low, float(np.min(starts)))
    while place < high:
        inside = (starts <= place) & (place < ends)
        ahead = np.where(starts > place, starts - place, np.inf)
        if not np.any(inside):  # no arm's mean is here
            if not np.any(np.isfinite(ahead)):
                break
            place = float(np.min(starts[starts > place]))
            continue
        step = float(np.min(np.where(inside, longest, np.maximum(ahead, longest))))
        if flat[0]:
            step = min(step, place)
        if flat[1]:
            step = min(step, max(0.5 * (0.5 * math.pi - place), 0.5 * math.pi - high))
        found.append((place, min(place + step, high)))
        place += step
    return found


def _towards_zero(angle: float, least: float) -> Nodes:
    """From 0 to the squared sine of the angle, for laws like x^least."""
    edges, step = [0.0], _FIRST
    while edges[-1] * least < _BEYOND:
        edges.append(edges[-1] + step)
        step = (_GROWTH - 1.0) * edges[-1]
    nodes, weights = _gauss(_BLOCK)
    half = 0.5 * np.diff(edges)[:, None]
    down = (np.array(edges)[:-1, None] + half * (1.0 + nodes)).ravel()
    log = 2.0 * math.log(math.sin(angle)) - down
    seen = np.maximum(log, _LOG_LEAST)
    x = np.exp(seen)
    y = 1.0 - x
    return Nodes(x, y, (half * weights).ravel() / y, log - seen)
