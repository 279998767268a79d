"""IRS.V-EMax with two arms: the first action of the inner problem over the lattice of pull counts.

What Gamma = E[max of the means] is over the lattice, and the dynamic programme, are those of
`irsppl.inner.cpu.emax`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from irsppl.engine import verbs
from irsppl.engine.families.natural import (
    BetaBernoulli,
    GammaExponential,
    GammaPoisson,
    NormalNormal,
)
from irsppl.engine.verbs import implements, verb
from irsppl.inner.arrays import Floats
from irsppl.inner.cpu import emax, families


class VEMax(NamedTuple):
    """Work arrays of `irsppl.inner.cpu.emax`.

    Of two Beta arms P(X > Y) and the overlap of their laws are carried from reward to reward, from
    the belief for which they were last known.
    """

    work: Floats  # [ROWS, T + 1]
    gammas: Floats  # [T (T + 1) / 2]
    path: Floats  # [T]
    first: Floats  # [3, 2]: P(X > Y) and overlap; xi; nu; at the start
    now: Floats  # [3, 2]


def v_emax(code: int, xi: Any, nu: Any, horizon: int) -> VEMax:
    """Two arms of a natural family."""
    first = np.array([emax.pair_start(code, xi, nu), xi, nu], np.float64)
    return VEMax(
        np.empty((emax.ROWS, horizon + 1)),
        np.empty(horizon * (horizon + 1) // 2),
        np.empty(horizon),
        first,
        first.copy(),
    )


@implements(verbs.reset, VEMax)
def _(part):
    for i in range(3):
        for a in range(2):
            part.now[i, a] = part.first[i, a]


@verb
def _fill(family, rule, horizon):
    """Gamma at every point of the lattice."""


@implements(_fill, BetaBernoulli)
def _(family, rule, horizon):
    now = rule.now
    for a in range(2):
        while now[2, a] < family.nu[a] - 0.5:
            won = now[1, a] < family.xi[a] - 0.5
            now[0, 0], now[0, 1] = emax.carry_pair(now[0, 0], now[0, 1], a, won, now[1], now[2])
            now[1, a] += 1.0 if won else 0.0
            now[2, a] += 1.0
    arms = (families.BETA_BERNOULLI, family.xi, family.nu, family.sd)
    emax.fill(*arms, now[0, 0], now[0, 1], horizon, rule.work, rule.gammas)


def _other(kind: Any, code: int) -> None:
    @implements(_fill, kind)
    def _(family, rule, horizon):
        emax.fill(code, family.xi, family.nu, family.sd, 0.0, 0.0, horizon, rule.work, rule.gammas)


_other(NormalNormal, families.NORMAL_NORMAL)
_other(GammaPoisson, families.GAMMA_POISSON)
_other(GammaExponential, families.GAMMA_EXPONENTIAL)


@implements(verbs.choose, VEMax)
def _(rule, family, limits, rng, period, remaining):
    horizon = verbs.draw_periods(limits.end, rng, period, remaining)
    if horizon == 1:
        return 0 if verbs.mean(family, 0) >= verbs.mean(family, 1) else 1
    last = horizon - 1
    verbs.draw_path(family, rng, 0, horizon, rule.path, 0, False)
    for n in range(horizon):
        rule.work[emax.MEAN1, n] = rule.path[n]
    verbs.draw_path(family, rng, 1, horizon, rule.path, 0, False)
    for n in range(horizon):
        rule.work[emax.MEAN2, last - n] = rule.path[n]
    _fill(family, rule, horizon)
    return emax.solve_2(horizon, rule.work, rule.gammas)[1]
