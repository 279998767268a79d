"""`find_kernel`: the one place that decides between compiled kernels and JAX for a policy."""

from __future__ import annotations

import functools
import itertools
import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from irsppl._checks import is_concrete
from irsppl.bandit import Bandit
from irsppl.budgets import Purse
from irsppl.constraints import Free, Prompt, Sure
from irsppl.delays import Delay
from irsppl.engine import Kernel, budgets, clouds, limits
from irsppl.engine.families import curves_of, family_of, start_of
from irsppl.engine.loops import play
from irsppl.engine.makers import Rule, rule_of
from irsppl.engine.situation import Situation, situation_of
from irsppl.horizons import Law
from irsppl.policies import Policy
from irsppl.policies.paths import Played

# Compiled parts of constraints: (constraint, situation, rule) -> what makes one for some paths; or
# None, where that rule is not served.
PARTS: dict[type, Callable[[Any, Situation, Rule], Callable[[limits.Given], Any] | None]] = {
    Free: lambda *_: lambda given: budgets.Free(0),
    Purse: budgets.purse,
    Prompt: limits.prompt,
    Delay: limits.delayed,
    Sure: lambda *_: lambda given: limits.Sure(0),
    Law: limits.ending,
}

# Futures that a thread copies at a time.
_BLOCK_BYTES = 2**22


def find_kernel(policy: Policy, bandit: Bandit) -> Kernel | None:
    """The compiled policy, or None where it has to run in JAX."""
    if policy.traceable and jax.default_backend() != "cpu":
        return None
    return kernel_for(policy, situation_of(bandit)) if is_concrete(bandit) else None


def kernel_for(policy: Policy, state: Situation) -> Kernel | None:
    """The same from numbers on the host."""
    rule = rule_of(policy, state)
    if rule is None:
        return None
    family = rule.family or family_of(state.belief, rule.needs)
    constraints = (state.arrivals, state.access, state.end)
    makers = [PARTS[type(c)](c, state, rule) for c in constraints if type(c) in PARTS]
    if family is None or None in makers or len(makers) < len(constraints):
        return None
    built = _Built(state, rule, family, makers)
    return Kernel(built.paths, built.decisions if rule.decides else None, built.played)


class _Built:
    """A rule, a family and limits, of which each call makes parts of its own."""

    def __init__(
        self, state: Situation, rule: Rule, family: Callable[[int, int], Any], makers: list[Any]
    ):
        self.state, self.rule, self.family, self.makers = state, rule, family, makers
        self.lock = threading.Lock()  # tables that a rule needs are solved once
        # Rewards of one arm that a plan may know of: those to come and those pending.
        self.most = state.remaining + int(state.waiting.max())

    @functools.cached_property
    def curves(self) -> Any:
        return None if self.rule.family else curves_of(self.state.belief)

    @functools.cached_property
    def start(self) -> Any:
        given = self.rule.family or self.curves
        return None if given else start_of(self.state.belief, self.rule.needs)

    def _futures(self) -> int:
        """Rewards of an arm that plans draw."""
        if self.rule.needs & {"index", "path", "separable"}:
            return min(self.most, self.rule.reach or self.most)
        return 1 if "prefix" in self.rule.needs else 0

    def _rule(self) -> Any:
        with self.lock:
            return self.rule.make(self.state)

    def _parts(self, fields: dict[str, np.ndarray]) -> tuple[Any, Any]:
        """A rule and a family; fields: those of the family that belong to the rewards it meets."""
        family = self.family(self._futures(), self.rule.futures)
        family = family._replace(work=family.work._replace(**fields)) if fields else family
        return self._rule(), family

    def _limits(self, given: limits.Given) -> limits.Limits:
        made = np.empty(self.state.num_arms, np.int64)
        delay, purse, end = (make(given) for make in self.makers)
        return limits.Limits(delay, purse, end, made)

    def _run(
        self,
        parts: tuple[Any, Any],
        given: limits.Given,
        seeds: np.ndarray,
        periods: np.ndarray,
        actions: np.ndarray,
    ) -> None:
        """Fills actions [S, T]; parts: a rule and a family, for the calling thread alone."""
        state = self.state
        actions[:] = -1
        now = (state.period, state.remaining, state.counts, state.waiting)
        streams = (np.ascontiguousarray(seeds, np.uint64), np.empty(4, np.uint64))
        play(*parts, self._limits(given), *now, given.rewards, periods, *streams, actions)

    def paths(self, *given: Any, **options: Any) -> np.ndarray:
        return self.played(*given, **options).arms

    def played(
        self,
        rewards: np.ndarray,
        seeds: np.ndarray,
        delays: np.ndarray | None = None,
        periods: np.ndarray | None = None,
        threads: int = 1,
    ) -> Played:
        rewards = np.asarray(rewards)
        ends = np.full(seeds.size, self.state.remaining, np.int64)
        if periods is not None:
            ends = np.minimum(ends, np.asarray(periods, np.int64))
        delays = None if delays is None else np.asarray(delays)

        fields: dict[str, np.ndarray] = {}
        if self.curves is not None:
            rewards, fields["exact"] = self.curves.code(rewards.astype(np.float64))
            fields["curves"] = self.curves.logs

        def given(part: slice) -> limits.Given:
            # As far as it is played, and in the thread that plays it: of a quick rule a copy takes
            # a third of the time. Writable, for numba has another type for arrays that are not.
            width = int(self.state.waiting.max()) + int(ends[part].max(initial=0))
            own = np.require(rewards[part, :, :width], np.float64, ["C", "W"])
            return limits.Given(own, None if delays is None else delays[part, :, :width])

        start = self.start
        if start is not None:  # only the user's model can update the belief
            horizon, separable = max(self._futures(), 1), "separable" in self.rule.needs
            return clouds.played(
                lambda: clouds.CloudPlay(start, self._rule(), self.most, horizon, separable),
                lambda part: self._limits(given(part)),
                self.state,
                rewards.astype(np.float64),
                ends,
                seeds,
                threads,
            )
        actions = np.empty((seeds.size, self.state.size), np.int16)
        # Few enough at a time for what is copied to stay near: fresh memory costs more than play.
        step = max(1, _BLOCK_BYTES // max(8 * math.prod(rewards.shape[1:]), 1))

        def run(part: slice) -> None:
            parts = self._parts(fields)
            for first in range(part.start, part.stop, step):
                block = slice(first, min(first + step, part.stop))
                self._run(parts, given(block), seeds[block], ends[block], actions[block])

        cuts = np.linspace(0, seeds.size, min(threads, max(seeds.size, 1)) + 1).astype(int)
        parts = [slice(*pair) for pair in itertools.pairwise(cuts.tolist())]
        if len(parts) == 1:
            run(parts[0])
        else:
            with ThreadPoolExecutor(len(parts)) as pool:
                list(pool.map(run, parts))
        return Played(actions)

    def decisions(self, seeds: np.ndarray) -> np.ndarray:
        ones = np.ones(seeds.size, np.int64)
        actions = np.empty((seeds.size, 1), np.int16)
        self._run(self._parts({}), limits.Given(np.zeros((1, 1, 1))), seeds, ones, actions)
        return actions[:, 0]
