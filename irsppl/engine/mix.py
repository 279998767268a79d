"""IRS.Mix: V-Zero for an arm's first pulls, FH for the rest; the cost does not grow with T."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from irsppl.engine import verbs
from irsppl.engine.verbs import implements, stateless
from irsppl.inner.arrays import Floats
from irsppl.inner.cpu import mixture


class Mix(NamedTuple):
    """Work arrays of `irsppl.inner.cpu.mixture`, and room to draw pending rewards beside them."""

    early: int  # pulls of an arm that are planned one by one
    room: int
    work: mixture.Scratch
    row: Floats  # [1 + pending + early]


def mix(num_arms: int, early: int, horizon: int, pending: int) -> Mix:
    """``pending``: most pending rewards of one arm."""
    room, work = mixture.workspace(num_arms, early, horizon)
    return Mix(early, room, work, np.empty(1 + pending + early))


stateless(Mix)


@implements(verbs.choose, Mix)
def _(rule, family, limits, rng, period, remaining):
    sums, later, counts = rule.work[0], rule.work[1], rule.work[5]
    width = min(rule.early, remaining)
    for a in range(counts.size):
        skip = verbs.known(limits.delay, rng, a, 0)
        later[a] = verbs.draw_prefix(family, rng, a, skip, width, remaining, rule.row)
        total = 0.0
        sums[a, 0] = 0.0
        for n in range(1, width + 1):
            total += rule.row[n]
            sums[a, n] = total
    mixture.solve(rule.early, remaining, rule.room, rule.work)
    return verbs.most_pulled(counts)  # as in V-Zero
