"""The loop of the engine: whole paths, of which the first period is a decision."""

from __future__ import annotations

from irsppl.engine import verbs
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.rng import KERNEL, seed_state


@njit(**KERNEL)
def play(
    rule, family, limits, period, remaining, counts, columns, rewards, periods, seeds, rng, actions
):
    """Play every replication to its end; fills ``actions`` [S, T] up to where play stops.

    ``counts`` [K]: pulls made of each arm before. ``rewards`` [S, K, N]: of each arm, the first
    ``columns`` [K] of them pending already. ``periods`` [S]: how long each replication
    goes on. With one period it is a decision for each seed, and ``rewards`` is not looked at.
    """
    for s in range(seeds.size):
        seed_state(seeds[s], rng)
        verbs.reset(family)
        verbs.reset(rule)
        verbs.reset(limits.delay)
        verbs.reset(limits.purse)
        for a in range(counts.size):
            limits.made[a] = counts[a]
        left = remaining
        for t in range(periods[s]):
            if left <= 0:
                break
            verbs.deliver(limits.delay, family, period + t)
            arm = verbs.choose(rule, family, limits, rng, period + t, left)
            if arm < 0 or not verbs.affordable(limits.purse, arm):
                break
            actions[s, t] = arm
            if t + 1 == periods[s]:
                break  # nobody looks at the last reward
            n = columns[arm] + limits.made[arm] - counts[arm]
            verbs.take(limits.delay, family, arm, n, rewards[s, arm, n], period + t)
            limits.made[arm] += 1
            left = verbs.pay(limits.purse, arm, left - 1)
