"""IRS.V-Solo: the best allocation of one future in which pulls are charged for their news."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irsppl.engine import verbs
from irsppl.engine.verbs import implements, stateless
from irsppl.inner.arrays import Floats, Ints, Singles
from irsppl.inner.cpu import allocation, solo
from irsppl.inner.cpu.allocation import PAD


class VSolo(NamedTuple):
    """cells, marks, least, counts: work arrays of `irsppl.inner.cpu.allocation`."""

    cells: Singles
    marks: Ints
    least: Floats
    counts: NDArray[np.int32]
    horizon: int
    code: int  # of the family
    scale: float
    level: float
    table: Singles
    step: float
    paths: Floats  # [K, T]
    cdfs: Floats
    weights: Floats
    levels: Floats


def v_solo(num_arms: int, horizon: int, code: int, scale: float, level: float) -> VSolo:
    """For so many arms and periods, of the family with that code."""
    return VSolo(
        *allocation.workspace(num_arms, horizon),
        np.empty(num_arms, np.int32),
        horizon,
        code,
        scale,
        level,
        *solo.slopes_table(),
        np.empty((num_arms, horizon)),
        np.empty((num_arms, solo.CELLS + 1)),
        np.empty(solo.CELLS),
        np.empty((2, num_arms)),
    )


stateless(VSolo)


@implements(verbs.choose, VSolo)
def _(rule, family, limits, rng, period, remaining):
    for a in range(rule.counts.size):
        verbs.draw_path(family, rng, a, remaining, rule.paths[a], 0, False)
    if remaining == 1:
        return np.argmax(rule.paths[:, 0])
    stride = allocation.row_stride(rule.horizon)
    solo.pay(rule, family.nu, family.sd, remaining, PAD, stride)
    return verbs.best_groups(limits.purse, rule, rule.counts.size, remaining)
