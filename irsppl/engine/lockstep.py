"""Play of clouds: replications advance until one needs what only the user's model knows.

That is new points for a cloud whose weights have degenerated and, of a model without kernels of its
own, the density of a reward that may take infinitely many values. The kernel below plays each
replication as far as it can; the caller (`irsppl.engine.clouds`) answers all that ask together, and
comes back.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from irsppl.engine import verbs
from irsppl.engine.densities import add_row
from irsppl.engine.families.cloud import choose_in, put_weights, start_cloud, weigh
from irsppl.engine.families.weights import atom_of, fits, largest
from irsppl.engine.limits import Delayed, Prompt, Waiting
from irsppl.engine.verbs import implements, verb
from irsppl.inner.arrays import Floats, Ints, Words
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.rng import APART, KERNEL, seed_state

RUNNING: Final = 0
ASKS_DENSITY: Final = 1  # of its next reward at its points
ASKS_MOVE: Final = 2
DONE: Final = 3


class Stage(NamedTuple):
    """How far each of S replications has come."""

    status: Ints  # [S]
    time: Ints  # [S] periods played
    delivered: Ints  # [S] whether this period's arrivals are in the inbox
    rngs: Words  # [S, 4]
    arm: Ints  # [S] of the reward that is being brought in
    reward: Floats  # [S]
    # Rewards in the belief: of each arm, or in row 0 of all arms where they share their latents.
    record: Floats  # [S, K or 1, B]
    record_arms: Ints  # [S, K or 1, B]
    seen: Ints  # [S, K or 1]
    inflation: Floats  # [S, K or 1] of variances, by copies that moves did not part
    least: Floats  # [S] the least effective sample size that a decision was made with


class Inbox(NamedTuple):
    """Stands where limits expect a family: keeps what they let through."""

    arms: Ints  # [S, P]
    rewards: Floats  # [S, P]
    count: Ints  # [S]
    read: Ints  # [S]
    at: Ints  # [2]: the replication; 1 where rewards are kept, 0 where it is a replay


@implements(verbs.observe, Inbox)
def _(family, arm, reward):
    if family.at[1] == 1:
        s = family.at[0]
        n = family.count[s]
        family.arms[s, n] = arm
        family.rewards[s, n] = reward
        family.count[s] = n + 1


@verb
def _turn_to(delay, s):
    """The replication whose delays are next."""


@implements(_turn_to, Prompt, Waiting)
def _(delay, s):
    pass


@implements(_turn_to, Delayed)
def _(delay, s):
    delay.now[0] = s


@njit(**KERNEL)
def begin(clouds: Any, stage: Stage, inbox: Inbox, weights: Any, seeds: Any, count: int) -> None:
    """Every replication at the start; those from ``count`` on are padding."""
    for s in range(seeds.size):
        stage.status[s] = RUNNING if s < count else DONE
        stage.time[s] = 0
        stage.delivered[s] = 0
        inbox.count[s] = 0
        inbox.read[s] = 0
        seed_state(seeds[s], stage.rngs[s])
        start_cloud(clouds, s, weights)


@njit(**KERNEL)
def _judge(stage: Stage, s: int, ess: float, enough: float) -> None:
    """The reward that is being brought in has been weighed: enter it, and see what it has left."""
    arm = stage.arm[s]
    c = arm if stage.seen.shape[1] > 1 else 0
    n = stage.seen[s, c]
    stage.record[s, c, n] = stage.reward[s]
    stage.record_arms[s, c, n] = arm
    stage.seen[s, c] = n + 1
    if ess < enough and ess > 0.0:
        stage.status[s] = ASKS_MOVE
        return
    # A reward that is impossible at every point leaves the weights, and shows as a size of zero.
    stage.least[s] = min(stage.least[s], ess / stage.inflation[s, c])
    stage.status[s] = RUNNING


@njit(**APART)
def _densities(rows: Any, s: int, cloud: int, kind: int, reward: float) -> None:
    """Log-densities of a reward at the points of a cloud, in the work array."""
    rows.logs[:] = 0
    number = rows.logs.dtype.type(reward)
    tables = rows.groups[cloud], rows.slots[cloud], rows.constants[cloud]
    features = rows.features[s, cloud]
    add_row(rows.addresses[cloud], features, kind, number, *tables, rows.logs)


@njit(**APART)
def take_in(clouds: Any, stage: Stage, s: int, logs: Any, row: Any, enough: float) -> None:
    """The reward that a replication brings in, of log-densities ``logs`` [n]; row [N] is work."""
    top = largest(logs)
    row[:] = 0.0
    if top > -np.inf and top < np.inf:
        fits(logs, top, row)
    _judge(stage, s, weigh(clouds, s, stage.arm[s], row, enough), enough)


@njit(**KERNEL)
def advance(
    parts: Any,
    stage: Stage,
    inbox: Inbox,
    work: Any,
    enough: float,
    now: Any,
    rewards: Any,
    periods: Any,
    actions: Any,
) -> None:
    """Play every running replication until it asks for something or ends.

    ``work``: `irsppl.engine.answers.Rows` and a row [N]; ``enough``: the effective sample size
    below which a cloud is moved (0: never). ``parts``, ``now`` and the rest as in
    `irsppl.engine.loops.play`. The limits hold the state of one replication: it is made again by
    going through the arms pulled so far, which costs next to nothing.
    """
    (rule, clouds, limits), (rows, row) = parts, work
    period, remaining, counts, columns = now
    few = clouds.values.shape[1] > 0
    for s in range(stage.status.size):
        if stage.status[s] != RUNNING:
            continue
        rng = stage.rngs[s]
        t = stage.time[s]
        inbox.at[0] = s
        inbox.at[1] = 0
        _turn_to(limits.delay, s)
        verbs.reset(rule)  # what a rule keeps is where a search begins, no more
        verbs.reset(limits.delay)
        verbs.reset(limits.purse)
        for a in range(counts.size):
            limits.made[a] = counts[a]
        left = remaining
        for u in range(t):
            verbs.deliver(limits.delay, inbox, period + u)
            arm: Any = np.int64(actions[s, u])
            n = columns[arm] + limits.made[arm] - counts[arm]
            verbs.take(limits.delay, inbox, arm, n, rewards[s, arm, n], period + u)
            limits.made[arm] += 1
            left = verbs.pay(limits.purse, arm, left - 1)
        if stage.delivered[s] == 1:
            verbs.deliver(limits.delay, inbox, period + t)
        inbox.at[1] = 1
        while True:
            if t >= periods[s] or left <= 0:
                stage.status[s] = DONE
                break
            while inbox.read[s] < inbox.count[s]:
                i = inbox.read[s]
                arm = inbox.arms[s, i]
                stage.arm[s] = arm
                stage.reward[s] = inbox.rewards[s, i]
                inbox.read[s] = i + 1
                if not few:
                    c = arm if stage.seen.shape[1] > 1 else 0
                    if rows.addresses[c] == 0:
                        stage.status[s] = ASKS_DENSITY
                        break
                    _densities(rows, s, c, 0 if stage.seen.shape[1] > 1 else arm, stage.reward[s])
                    take_in(clouds, stage, s, rows.logs, row, enough)
                    if stage.status[s] != RUNNING:
                        break
                    continue
                atom = atom_of(clouds.values, arm, inbox.rewards[s, i])
                known = clouds.likelihood[clouds.slot[s], arm, atom]
                _judge(stage, s, weigh(clouds, s, arm, known, enough), enough)
                if stage.status[s] != RUNNING:
                    break
            if stage.status[s] != RUNNING:
                break
            inbox.count[s] = 0
            inbox.read[s] = 0
            if stage.delivered[s] == 0:
                verbs.deliver(limits.delay, inbox, period + t)
                stage.delivered[s] = 1
                continue
            arm = choose_in(clouds, s, rule, limits, rng, period + t, left)
            if arm < 0 or not verbs.affordable(limits.purse, arm):
                stage.status[s] = DONE
                break
            actions[s, t] = arm
            if t + 1 == periods[s]:
                stage.status[s] = DONE
                break  # nobody looks at the last reward
            n = columns[arm] + limits.made[arm] - counts[arm]
            verbs.take(limits.delay, inbox, arm, n, rewards[s, arm, n], period + t)
            limits.made[arm] += 1
            left = verbs.pay(limits.purse, arm, left - 1)
            t += 1
            stage.delivered[s] = 0
        stage.time[s] = t


@njit(**KERNEL)
def take_in_rows(clouds: Any, stage: Stage, who: Any, logs: Any, row: Any, enough: float) -> None:
    """The rewards of replications ``who``, with log-densities ``logs`` [B, n]; row [N] is work."""
    for i in range(who.size):
        take_in(clouds, stage, who[i], logs[i], row, enough)


@njit(**KERNEL)
def moved(clouds: Any, stage: Stage, who: Any, weights: Any, inflation: Any) -> None:
    """The clouds of these replications have new points, of weights [B, n]."""
    for i in range(who.size):
        s = who[i]
        arm = stage.arm[s]
        c = arm if stage.seen.shape[1] > 1 else 0
        put_weights(clouds, s, arm, weights[i])
        stage.inflation[s, c] = inflation[i]
        squares = 0.0
        for j in range(weights.shape[1]):
            squares += weights[i, j] * weights[i, j]
        stage.least[s] = min(stage.least[s], 1.0 / (squares * inflation[i]))
        stage.status[s] = RUNNING
