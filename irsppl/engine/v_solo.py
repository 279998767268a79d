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
    paths: Floats  # [K, M + 1], of at most M rewards that a plan may know of
    upto: Ints  # [K, T + 1] how many of them are known in time to each pull
    shown: Floats  # [K] rewards that play is expected to show
    cdfs: Floats
    weights: Floats
    levels: Floats


def v_solo(
    num_arms: int, horizon: int, rewards: int, code: int, scale: float, level: float
) -> VSolo:
    """For so many arms, periods and rewards of an arm, of the family with that code."""
    return VSolo(
        *allocation.workspace(num_arms, horizon),
        np.empty(num_arms, np.int32),
        horizon,
        code,
        scale,
        level,
        *solo.slopes_table(),
        np.empty((num_arms, rewards + 1)),
        np.empty((num_arms, horizon + 1), np.int64),
        np.empty(num_arms),
        np.empty((num_arms, solo.CELLS + 1)),
        np.empty(solo.CELLS),
        np.empty((2, num_arms)),
    )


stateless(VSolo)


@implements(verbs.choose, VSolo)
def _(rule, family, limits, rng, period, remaining):
    periods = verbs.draw_periods(limits.end, rng, period, remaining)
    verbs.look_ahead(limits.delay, period)
    for a in range(rule.counts.size):
        for n in range(periods + 1):
            rule.upto[a, n] = verbs.in_time(limits.delay, rng, a, n, periods)
        rule.shown[a] = verbs.shown(limits.delay, a, periods)
        verbs.draw_path(family, rng, a, rule.upto[a, periods] + 1, rule.paths[a], 0, False)
    stride = allocation.row_stride(rule.horizon)
    solo.pay(rule, family.nu, family.sd, periods, PAD, stride)
    return verbs.best_groups(limits.purse, rule, rule.counts.size, periods)
