"""What has been seen and nothing else: how often each arm has shown each of its rewards."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from irsppl.engine import verbs
from irsppl.engine.verbs import implements
from irsppl.inner.arrays import Floats, Ints


class Counts(NamedTuple):
    """K arms, C rewards; counts are flat, arm by arm."""

    first: Ints  # [K * C] at the start
    edges: Floats  # [K * (C - 1)] rising, between the rewards
    order: Ints  # [K * C] places in the counts of the rising rewards
    now: Ints  # [K * C]
    size: int  # C


def counts(seen: Any, values: Any) -> Counts:
    """seen [K, C], values [K, C]; a reward counts as the nearest value."""
    seen, values = np.array(seen, np.int64), np.array(values, np.float64)
    order = np.argsort(values, axis=1)
    rising = np.take_along_axis(values, order, axis=1)
    order += np.arange(len(values))[:, None] * values.shape[1]
    edges = (rising[:, 1:] + rising[:, :-1]) / 2
    size = values.shape[1]
    return Counts(seen.ravel(), edges.ravel(), order.ravel(), seen.ravel().copy(), size)


@implements(verbs.reset, Counts)
def _(part):
    for i in range(part.first.size):
        part.now[i] = part.first[i]


@implements(verbs.observe, Counts)
def _(family, arm, reward):
    size = family.size
    place = arm * size
    for i in range(arm * (size - 1), (arm + 1) * (size - 1)):
        # Added up, not branched on: rewards are what a branch predictor cannot guess.
        place += 1 if reward > family.edges[i] else 0
    family.now[family.order[place]] += 1
