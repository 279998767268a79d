"""IRS.V-Zero and its separable form for independent arms: the best allocation of one future."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from irsppl.engine import verbs
from irsppl.engine.limits import Delayed, Prompt, Waiting
from irsppl.engine.verbs import implements, stateless, verb
from irsppl.inner.arrays import Floats, Ints, Singles
from irsppl.inner.cpu import allocation
from irsppl.inner.cpu.allocation import PAD


class VZero(NamedTuple):
    """The n-th pull of an arm pays what its earlier ones will have taught by then.

    cells, marks, least, counts: work arrays of `irsppl.inner.cpu.allocation`; trail [T + 1].
    """

    cells: Singles
    marks: Ints
    least: Floats
    counts: NDArray[np.int32]
    trail: Floats
    upto: Ints  # [T + 1]
    horizon: int
    separable: bool  # what is known by the last decision, instead of by the pull itself


def v_zero(num_arms: int, horizon: int, rewards: int, separable: bool) -> VZero:
    """``rewards``: most rewards of an arm that a plan may know of."""
    work = allocation.workspace(num_arms, horizon)
    return VZero(
        *work,
        np.empty(num_arms, np.int32),
        np.empty(rewards + 1),
        np.empty(horizon + 1, np.int64),
        horizon,
        separable,
    )


@verb
def _payoffs(delay, family, rule, rng, arm, periods):
    """Write what the first 0, .., periods pulls of the arm pay; least: the poorest of them."""


@implements(_payoffs, Prompt)
def _(delay, family, rule, rng, arm, periods):
    start = arm * allocation.row_stride(rule.horizon) + PAD
    rule.cells[start] = 0.0
    rule.least[arm] = verbs.draw_path(family, rng, arm, periods, rule.cells, start + 1, True)


@implements(_payoffs, Waiting, Delayed)
def _(delay, family, rule, rng, arm, periods):
    start = arm * allocation.row_stride(rule.horizon) + PAD
    for n in range(periods):
        if rule.separable:
            rule.upto[n] = verbs.in_time(delay, rng, arm, n, periods)
        else:
            rule.upto[n] = verbs.known(delay, rng, arm, n)
    length = rule.upto[periods - 1] + 1
    rule.least[arm] = verbs.draw_path(family, rng, arm, length, rule.trail, 0, False)
    total = 0.0
    rule.cells[start] = 0.0
    for n in range(periods):
        total += rule.trail[rule.upto[n]]
        rule.cells[start + n + 1] = total


@implements(verbs.choose, VZero)
def _(rule, family, limits, rng, period, remaining):
    periods = verbs.draw_periods(limits.end, rng, period, remaining)
    verbs.look_ahead(limits.delay, period)
    for a in range(rule.counts.size):
        _payoffs(limits.delay, family, rule, rng, a, periods)
    return verbs.best_groups(limits.purse, rule, rule.counts.size, periods)


class Separable(NamedTuple):
    """IRS.V-Zero-separable for correlated arms: the other arms say all that they can."""

    cells: Singles
    marks: Ints
    least: Floats
    counts: NDArray[np.int32]
    horizon: int


def separable(num_arms: int, horizon: int) -> Separable:
    """Work arrays for so many arms and periods."""
    work = allocation.workspace(num_arms, horizon)
    return Separable(*work, np.empty(num_arms, np.int32), horizon)


@implements(verbs.choose, Separable)
def _(rule, family, limits, rng, period, remaining):
    if rule.counts.size == 1:
        return 0  # there is no other arm to say anything
    periods = verbs.draw_periods(limits.end, rng, period, remaining)
    stride = allocation.row_stride(rule.horizon)
    verbs.draw_separable(family, rng, periods, rule.cells, stride, PAD, rule.least)
    return verbs.best_groups(limits.purse, rule, rule.counts.size, periods)


stateless(VZero, Separable)
