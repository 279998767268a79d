"""The loop of the engine: whole paths, of which the first period is a decision."""

from __future__ import annotations

from typing import Any

from irsppl.engine import verbs
from irsppl.engine.cache import kernel
from irsppl.inner.cpu.rng import seed_state


@kernel
def play(
    rule: Any,
    family: Any,
    limits: Any,
    period: int,
    remaining: int,
    columns: Any,
    rewards: Any,
    periods: Any,
    seeds: Any,
    rng: Any,
    pulls: Any,
    actions: Any,
) -> None:
    """Play every replication to its end; fills ``actions`` [S, T] up to where play stops.

    ``rewards`` [S, K, N]: of pull number n of each arm, the first ``columns`` [K] of them pending
    already. ``periods`` [S]: how long each replication goes on. With one period it is a decision
    for each seed, and ``rewards`` is not looked at.
    """
    for s in range(seeds.size):
        seed_state(seeds[s], rng)
        verbs.reset(family)
        verbs.open_up(limits.delay)
        verbs.open_up(limits.purse)
        for a in range(pulls.size):
            pulls[a] = columns[a]
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
            n = pulls[arm]
            verbs.take(limits.delay, family, arm, n, rewards[s, arm, n], period + t)
            pulls[arm] = n + 1
            left = verbs.pay(limits.purse, arm, left - 1)
