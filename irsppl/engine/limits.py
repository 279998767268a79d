"""Delays and ends of play, each a part of its own; "none" compiles to nothing. Budgets: `budgets`.

The meaning of each is that of `irsppl.penalties.arrivals`, `irsppl.penalties._payoffs` and
`irsppl.policies.paths`, whose traced code these are twins of. Delays are independent of rewards and
rewards of one arm are exchangeable, so of a future's delays only *how many* rewards are known at
each decision is ever needed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from irsppl.delays import Delay
from irsppl.engine import verbs
from irsppl.engine.situation import Situation
from irsppl.engine.verbs import INLINE, implements
from irsppl.horizons import Law
from irsppl.inner.arrays import Floats, Ints, Words
from irsppl.inner.cpu import rng as random
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.rng import KERNEL

_NEVER = 2**40
# Cells of the guide to the inverse of a delay's distribution function.
_GUIDE = 256


class Limits(NamedTuple):
    """All that limits play, one part for each question."""

    delay: NamedTuple
    purse: NamedTuple
    end: NamedTuple
    made: Ints  # [K] pulls made of each arm, from the very first


class Given(NamedTuple):
    """Paths that are played: rewards [S, K, N] and their delays, where rewards come late.

    A decision has no delays, and its rewards are not looked at.
    """

    rewards: Floats
    delays: Ints | None = None


# ------------------------------------------------------------------ when rewards are known


class Prompt(NamedTuple):
    """Every reward is known before the next decision."""

    zero: int


class Waiting(NamedTuple):
    """Some pulls are pending, nobody knows until when: a plan takes them as known at once."""

    pending: Ints  # [K]


class Delayed(NamedTuple):
    """Rewards come late. P: periods in all, from the very first."""

    cdf: Floats  # [K, P], P(D <= j)
    guide: Ints  # [K, G]: the first j with cdf[j] > i / G
    fixed: Ints  # [K], the delay, or -1 where it is random
    delays: Ints  # [S, K, N] of the replications that are played
    first_arms: Ints  # pulls that are pending at the start: their arms,
    first_made: Ints  # and the periods in which they were made
    first_due: Ints  # [S, number of those] the period from which each is known
    first_owed: Floats  # and what it pays
    # What is pending now: count [1]; arm, period made, period due, reward [P] each.
    count: Ints
    arms: Ints
    made: Ints
    due: Ints
    owed: Floats
    # Of those, in a plan: `sure[a, s]` of arm a arrive at moment s for certain; the others have
    # waited `loose` [P] periods, number loose_from[a], .., loose_from[a + 1] - 1 of arm a.
    sure: Ints  # [K, P + 2]
    loose: Ints
    loose_from: Ints  # [K + 1]
    # A plan's arrivals, as far as it has asked: `reached[a]` moments and pulls, `counted[a, s]`
    # rewards known at moment s, `arriving[a, s]` pulls found so far that arrive then by chance.
    reached: Ints  # [K]
    counted: Ints  # [K, P + 2]
    arriving: Ints  # [K, P + 2]
    last: Ints  # [2, K]: no moment after this one is set in `sure`, in `arriving`
    asked: Ints  # [K, 2]: pulls looked at by `in_time`, and how many were in time
    # Replications begun; period of the plan; period that `sure` and `loose` are for, row of
    # `first_due` that what is pending still is that of (-1: none).
    now: Ints  # [4]


def prompt(limit: Any, state: Situation, rule: Any) -> Callable[[Given], Prompt | Waiting]:
    part = Waiting(state.waiting) if state.waiting.any() else Prompt(0)
    return lambda given: part


def delayed(limit: Delay, state: Situation, rule: Any) -> Callable[[Given], Delayed]:
    cdf = np.array(limit.cdf, np.float64)
    grid = np.arange(_GUIDE) / _GUIDE
    guide = np.stack([np.searchsorted(row, grid, side="right") for row in cdf])
    arms, periods = cdf.shape
    fixed = np.array([-1] * arms if limit.fixed is None else limit.fixed, np.int64)
    zeros: Any = functools.partial(np.zeros, dtype=np.int64)

    def make(given: Given) -> Delayed:
        delays, pulled = np.zeros((1, 1, 1), np.int64), state.pulled
        due, owed = np.full((1, pulled.size), _NEVER), np.zeros((1, pulled.size))
        if given.delays is not None:
            delays = np.array(given.delays, np.int64)
            waited, order = state.period - state.made, _order(pulled)
            late = np.maximum(delays[:, pulled, order] + 1 - waited[None, :], 1)
            due = state.period + late
            owed = np.ascontiguousarray(given.rewards[:, pulled, order], np.float64)
        first = (pulled, state.made, np.ascontiguousarray(due, np.int64), owed)
        pending = (zeros(1), zeros(periods), zeros(periods), zeros(periods), np.zeros(periods))
        sure = (zeros((arms, periods + 2)), zeros(periods), zeros(arms + 1))
        plan = (zeros(arms), zeros((arms, periods + 2)), zeros((arms, periods + 2)))
        marks = (zeros((2, arms)), zeros((arms, 2)), np.array([0, 0, -1, -1]))
        law = (cdf, guide, fixed, delays)
        return Delayed._make([*law, *first, *pending, *sure, *plan, *marks])

    return make


def _order(pulled: np.ndarray) -> np.ndarray:
    """Number of each pull among those of its arm."""
    order = np.empty(pulled.size, np.int64)
    for arm in np.unique(pulled):
        own = pulled == arm
        order[own] = np.arange(np.count_nonzero(own))
    return order


@implements(verbs.reset, Prompt, Waiting)
def _(limit):
    pass


@implements(verbs.deliver, Prompt, Waiting)
def _(delay, family, period):
    pass


@implements(verbs.take, Prompt, Waiting)
def _(delay, family, arm, pull, reward, period):
    verbs.observe(family, arm, reward)


@implements(verbs.waiting, Prompt)
def _(delay, arm):
    return 0


@implements(verbs.waiting, Waiting)
def _(delay, arm):
    return delay.pending[arm]


@implements(verbs.waiting, Delayed)
def _(delay, arm):
    count = 0
    for i in range(delay.count[0]):
        count += 1 if delay.arms[i] == arm else 0
    return count


@implements(verbs.look_ahead, Prompt, Waiting)
def _(delay, period):
    pass


@implements(verbs.known, Prompt)
def _(delay, rng, arm, moment):
    return moment


@implements(verbs.in_time, Prompt)
def _(delay, rng, arm, pulls, periods):
    return min(pulls, periods - 1)


@implements(verbs.shown, Prompt, Waiting)
def _(delay, arm, periods):
    return np.float64(verbs.waiting(delay, arm) + periods - 1)


@implements(verbs.known, Waiting)
def _(delay, rng, arm, moment):
    return delay.pending[arm] + moment


@implements(verbs.in_time, Waiting)
def _(delay, rng, arm, pulls, periods):
    return delay.pending[arm] + min(pulls, periods - 1)


@njit(**KERNEL)
def _draw_delay(rng: Words, cdf: Floats, guide: Ints, fixed: int, arm: int, waited: int) -> int:
    """The delay of a pull that has waited so long (0: a pull to come); the last one is never."""
    size = cdf.shape[1]
    if fixed >= 0:
        return max(fixed, waited)
    past = cdf[arm, min(waited, size) - 1] if waited > 0 else 0.0
    if past >= 1.0:  # its law had promised it earlier: due at any moment
        return waited
    level = past + (1.0 - past) * random.uniform(rng)
    # The first j with cdf[j] > level, from where the guide says that it lies or later: by steps
    # that double, then between the last two of them.
    j = max(guide[arm, min(np.int64(level * guide.shape[1]), guide.shape[1] - 1)], waited)
    if j >= size or cdf[arm, j] > level:
        return j
    step, after = 1, min(j + 1, size)
    while after < size and cdf[arm, after] <= level:
        step *= 2
        j, after = after, min(after + step, size)
    while after - j > 1:
        middle = (j + after) // 2
        if cdf[arm, middle] <= level:
            j = middle
        else:
            after = middle
    return after


@implements(verbs.reset, Delayed)
def _(limit):
    row = min(limit.now[0], limit.first_due.shape[0] - 1)  # a decision has one row for all seeds
    limit.now[0] += 1
    if limit.now[3] == row:
        return
    limit.count[0] = limit.first_arms.size
    for i in range(limit.first_arms.size):
        limit.arms[i] = limit.first_arms[i]
        limit.made[i] = limit.first_made[i]
        limit.due[i] = limit.first_due[row, i]
        limit.owed[i] = limit.first_owed[row, i]
    limit.now[2] = -1
    limit.now[3] = row


@implements(verbs.deliver, Delayed)
def _(delay, family, period):
    kept = 0
    for i in range(delay.count[0]):
        if delay.due[i] <= period:
            verbs.observe(family, delay.arms[i], delay.owed[i])
            continue
        if kept < i:
            delay.arms[kept] = delay.arms[i]
            delay.made[kept] = delay.made[i]
            delay.due[kept] = delay.due[i]
            delay.owed[kept] = delay.owed[i]
        kept += 1
    if kept < delay.count[0]:
        delay.count[0] = kept
        delay.now[2:] = -1


@implements(verbs.take, Delayed)
def _(delay, family, arm, pull, reward, period):
    i = delay.count[0]
    delay.arms[i] = arm
    delay.made[i] = period
    delay.due[i] = period + delay.delays[delay.now[0] - 1, arm, pull] + 1
    delay.owed[i] = reward
    delay.count[0] = i + 1
    delay.now[2:] = -1


@implements(verbs.look_ahead, Delayed)
def _(delay, period):
    delay.reached[:] = -1
    delay.now[1] = period
    if delay.now[2] != period:
        _sort_pending(delay)
        delay.now[2] = period


@njit(**INLINE)
def _sort_pending(delay: Delayed) -> None:
    """Tell pending pulls that arrive for certain at some moment from those that chance decides."""
    arms, size = delay.cdf.shape
    final = delay.sure.shape[1] - 1
    found = 0
    for arm in range(arms):
        delay.sure[arm, : delay.last[0, arm] + 1] = 0
        delay.last[0, arm] = 0
        delay.loose_from[arm] = found
        fixed = delay.fixed[arm]
        for i in range(delay.count[0]):
            if delay.arms[i] != arm:
                continue
            waited = delay.now[1] - delay.made[i]
            if fixed < 0 and (waited == 0 or delay.cdf[arm, min(waited, size) - 1] < 1.0):
                delay.loose[found] = waited
                found += 1
                continue
            when = max(fixed + 1 - waited, 1)  # at any moment where its law had promised it earlier
            if when <= final:
                delay.sure[arm, when] += 1
                delay.last[0, arm] = max(delay.last[0, arm], when)
    delay.loose_from[arms] = found


@njit(**INLINE)
def _arrives(delay: Delayed, arm: int, moment: int) -> None:
    if moment < delay.arriving.shape[1]:
        delay.arriving[arm, moment] += 1
        delay.last[1, arm] = max(delay.last[1, arm], moment)


@njit(**INLINE)
def _arrivals(delay: Delayed, rng: Words, arm: int) -> None:
    """Put the arm's pending pulls where they arrive; nothing is known at moment 0."""
    delay.arriving[arm, : delay.last[1, arm] + 1] = 0
    delay.last[1, arm] = 0
    for i in range(delay.loose_from[arm], delay.loose_from[arm + 1]):
        waited = delay.loose[i]
        late = _draw_delay(rng, delay.cdf, delay.guide, delay.fixed[arm], arm, waited)
        _arrives(delay, arm, max(late + 1 - waited, 1))
    delay.counted[arm, 0] = 0
    delay.reached[arm] = 0
    delay.asked[arm, 0] = -1


@implements(verbs.known, Delayed)
def _(delay, rng, arm, moment):
    if delay.reached[arm] < 0:
        _arrivals(delay, rng, arm)
    while delay.reached[arm] < moment:
        # The pull made at moment n arrives at n + 1 at the earliest, so it is looked at then.
        n = delay.reached[arm]
        late = _draw_delay(rng, delay.cdf, delay.guide, delay.fixed[arm], arm, 0)
        _arrives(delay, arm, n + 1 + late)
        come = delay.sure[arm, n + 1] + delay.arriving[arm, n + 1]
        delay.counted[arm, n + 1] = delay.counted[arm, n] + come
        delay.reached[arm] = n + 1
    return delay.counted[arm, moment]


@implements(verbs.in_time, Delayed)
def _(delay, rng, arm, pulls, periods):
    if delay.reached[arm] < 0:
        _arrivals(delay, rng, arm)
    if delay.asked[arm, 0] < 0:
        total = 0
        for s in range(1, periods):
            total += delay.sure[arm, s] + delay.arriving[arm, s]
        delay.asked[arm, 0] = 0
        delay.asked[arm, 1] = total
    # Pulls from number periods - 1 on are too late whatever their delay.
    first, stop = delay.asked[arm, 0], min(pulls, periods - 1)
    if stop > first:
        count, fixed = 0, delay.fixed[arm]
        if fixed >= 0:
            count = max(min(stop, periods - 1 - fixed) - first, 0)
        else:
            for n in range(first, stop):
                # In time with the probability that its delay is at most periods - 2 - n.
                count += 1 if random.uniform(rng) < delay.cdf[arm, periods - 2 - n] else 0
        delay.asked[arm, 0] = stop
        delay.asked[arm, 1] += count
    return delay.asked[arm, 1]


@implements(verbs.shown, Delayed)
def _(delay, arm, periods):
    total = np.float64(verbs.waiting(delay, arm))
    for j in range(periods - 1):
        total += delay.cdf[arm, j]
    return total


# ------------------------------------------------------------------ when play ends


class Sure(NamedTuple):
    """The horizon is known."""

    zero: int


class Ending(NamedTuple):
    """Nobody knows when play ends: P(T >= 1), P(T >= 2), ... from the very first period."""

    survivor: Floats


def ending(limit: Law, state: Situation, rule: Any) -> Callable[[Given], Sure | Ending]:
    part = Sure(0) if rule.blind else Ending(np.array(limit.table.values, np.float64))
    return lambda given: part


@implements(verbs.draw_periods, Sure)
def _(end, rng, period, remaining):
    return remaining


@implements(verbs.draw_periods, Ending)
def _(end, rng, period, remaining):
    # Play has come so far, so this period is played.
    level = random.uniform(rng) * end.survivor[period]
    low, high = period + 1, end.survivor.size
    while low < high:
        middle = (low + high) // 2
        if end.survivor[middle] > level:
            low = middle + 1
        else:
            high = middle
    return min(low - period, remaining)
