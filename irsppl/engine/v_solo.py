"""IRS.V-Solo: the most pulled arm of the leave-one-out problem of one sampled future."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irsppl.engine import verbs
from irsppl.engine.verbs import implements, stateless
from irsppl.inner.cpu import solo


class VSolo(NamedTuple):
    """What `irsppl.inner.cpu.solo` asks for, for a natural family of the given code."""

    code: int
    scale: float
    level: float
    table: NDArray[np.float32]
    step: float
    horizon: int
    scratch: tuple[NDArray, ...]


stateless(VSolo)


def v_solo(code: int, scale: float, level: float, num_arms: int, horizon: int) -> VSolo:
    table, step = solo.slopes_table()
    return VSolo(code, scale, level, table, step, horizon, solo.workspace(num_arms, horizon))


@implements(verbs.choose, VSolo)
def _(rule, family, limits, rng, period, remaining):
    if remaining == 1:
        best = 0
        for a in range(1, family.xi.size):
            if verbs.mean(family, a) > verbs.mean(family, best):
                best = a
        return best
    paths = rule.scratch[4]
    for a in range(family.xi.size):
        verbs.draw_path(family, rng, a, remaining, paths[a], 0, False)
    return solo.most_pulled(
        rule.code,
        family.nu,
        family.sd,
        remaining,
        rule.horizon,
        rule.scale,
        rule.level,
        rule.table,
        rule.step,
        rule.scratch,
    )
