"""Rewards from a short list of values, Dirichlet belief of their probabilities.

The index is not compiled: E[(mu - lam)+] is an integral here, not a closed form.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from irsppl.engine import verbs
from irsppl.engine.families.weights import atom_of, draw_atom, tally
from irsppl.engine.verbs import INLINE, implements
from irsppl.inner.cpu import rng as random


class DirichletCategorical(NamedTuple):
    """K arms, C values."""

    first: NDArray[np.float64]  # [K, C] parameters at the start
    values: NDArray[np.float64]  # [K, C], the same for all arms
    alpha: NDArray[np.float64]  # [K, C], now
    law: NDArray[np.float64]  # [C] cumulative probabilities of one draw
    tallies: NDArray[np.int64]  # [C]


def dirichlet_categorical(alpha: Any, values: Any) -> DirichletCategorical:
    """alpha [K, C], values [C]."""
    first = np.array(alpha, np.float64)
    every = np.ascontiguousarray(np.broadcast_to(np.asarray(values, np.float64), first.shape))
    size = first.shape[1]
    return DirichletCategorical(
        first, every, np.empty_like(first), np.empty(size), np.empty(size, np.int64)
    )


@implements(verbs.reset, DirichletCategorical)
def _(family):
    for a in range(family.first.shape[0]):
        for c in range(family.first.shape[1]):
            family.alpha[a, c] = family.first[a, c]


@implements(verbs.observe, DirichletCategorical)
def _(family, arm, reward):
    family.alpha[arm, atom_of(family.values, arm, reward)] += 1.0


@njit(**INLINE)
def _state(family: DirichletCategorical, arm: int) -> tuple[float, float]:
    """Pseudo-sum and pseudo-count of rewards."""
    xi, nu = 0.0, 0.0
    for c in range(family.alpha.shape[1]):
        xi += family.alpha[arm, c] * family.values[arm, c]
        nu += family.alpha[arm, c]
    return xi, nu


@implements(verbs.mean, DirichletCategorical)
def _(family, arm):
    xi, nu = _state(family, arm)
    return xi / nu


@njit(**INLINE)
def _draw(family: DirichletCategorical, rng: NDArray[np.uint64], arm: int) -> float:
    """Probabilities of the values into ``law``; returns their mean."""
    total, first = 0.0, 0.0
    for c in range(family.law.size):
        g = random.gamma(rng, family.alpha[arm, c])
        total += g
        first += g * family.values[arm, c]
        family.law[c] = total
    if total <= 0.0:
        # All underflowed, which takes parameters far below one: the largest takes all.
        best = 0
        for c in range(family.law.size):
            best = c if family.alpha[arm, c] > family.alpha[arm, best] else best
        for c in range(family.law.size):
            family.law[c] = 1.0 if c >= best else 0.0
        return family.values[arm, best]
    for c in range(family.law.size):
        family.law[c] /= total
    return first / total


@implements(verbs.draw_means, DirichletCategorical)
def _(family, rng, out):
    for a in range(out.size):
        out[a] = _draw(family, rng, a)


@implements(verbs.draw_future_means, DirichletCategorical)
def _(family, rng, counts, out):
    for a in range(out.size):
        xi, nu = _state(family, a)
        n = counts[a]
        if n > 0:
            _draw(family, rng, a)
            tally(rng, family.law, n, family.tallies)
            for c in range(family.law.size):
                xi += family.tallies[c] * family.values[a, c]
        out[a] = xi / (nu + n)


@implements(verbs.draw_path, DirichletCategorical)
def _(family, rng, arm, length, out, start, cumulative):
    total, nu = _state(family, arm)
    mean = total / nu
    least, summed = mean, mean
    out[start] = mean
    if length <= 1:
        return least
    _draw(family, rng, arm)
    for n in range(1, length):
        total += family.values[arm, draw_atom(rng, family.law)]
        mean = total / (nu + n)
        least = mean if mean < least else least
        summed += mean
        out[start + n] = summed if cumulative else mean
    return least


@implements(verbs.draw_prefix, DirichletCategorical)
def _(family, rng, arm, skip, width, total, row):
    earned, nu = _state(family, arm)
    _draw(family, rng, arm)
    length, rest = skip + width, total - width
    for n in range(length):
        if n > 0:
            earned += family.values[arm, draw_atom(rng, family.law)]
        if n >= skip:
            row[1 + n - skip] = earned / (nu + n)
    if rest > 0:
        tally(rng, family.law, rest, family.tallies)
        for c in range(family.law.size):
            earned += family.tallies[c] * family.values[arm, c]
    return earned / (nu + length - 1 + rest)
