"""`find_kernel`: the one place that decides between compiled kernels and JAX."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from irsppl._checks import is_concrete
from irsppl.bandit import Bandit
from irsppl.engine import Kernel, budgets, limits
from irsppl.engine.clouds import CloudPlay
from irsppl.engine.families import curves_of, family_of, start_of
from irsppl.engine.loops import play
from irsppl.engine.makers import Rule, rule_of
from irsppl.engine.situation import Situation, situation_of
from irsppl.policies import Policy
from irsppl.policies.paths import Played

_NEVER = 2**40
# Cells of the guide to the inverse of a delay's distribution function.
_GUIDE = 256


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
    if family is None:
        return None
    built = _Built(state, rule, family)
    return Kernel(built.paths, built.decisions if rule.decides else None, built.played)


def _order(pulled: np.ndarray) -> np.ndarray:
    """Number of each pull among those of its arm."""
    order = np.empty(pulled.size, np.int64)
    for arm in np.unique(pulled):
        own = pulled == arm
        order[own] = np.arange(np.count_nonzero(own))
    return order


class _Built:
    """A rule, a family and limits, of which each call makes parts of its own."""

    def __init__(self, state: Situation, rule: Rule, family: Callable[[int, int], Any]):
        self.state, self.rule, self.family = state, rule, family
        self.lock = threading.Lock()  # tables that a rule needs are solved once
        # Rewards of one arm that a plan may know of: those to come and those pending.
        self.most = state.remaining + int(state.waiting.max())
        if state.delay is not None:
            self.cdf = np.array(state.delay.cdf, np.float64)
            grid = np.arange(_GUIDE) / _GUIDE
            self.guide = np.stack([np.searchsorted(row, grid, side="right") for row in self.cdf])
            fixed = state.delay.fixed
            self.fixed = np.array([-1] * state.num_arms if fixed is None else fixed, np.int64)

    @functools.cached_property
    def curves(self) -> Any:
        return None if self.rule.family else curves_of(self.state.belief)

    @functools.cached_property
    def start(self) -> Any:
        given = self.rule.family or self.curves
        return None if given else start_of(self.state.belief, self.rule.needs)

    def _end(self) -> Any:
        if self.state.survivor is None or self.rule.blind:
            return limits.Sure(0)
        return limits.Ending(self.state.survivor)

    def _purse(self) -> Any:
        if self.state.purse is None:
            return budgets.Free(0)
        p, periods, capped = self.state.purse, self.state.remaining, self.state.capped
        groups = self.rule.groups
        return budgets.purse(p.costs, int(p.money), p.step, p.cells, capped, periods, groups)

    def _delay(self, rewards: np.ndarray | None, delays: np.ndarray | None) -> Any:
        state = self.state
        if state.delay is None:
            return limits.Waiting(state.waiting) if state.waiting.any() else limits.Prompt(0)
        if delays is None or rewards is None:
            due, owed = np.full((1, state.pulled.size), _NEVER), np.zeros((1, state.pulled.size))
            delays = np.zeros((1, 1, 1), np.int64)
        else:
            delays = np.array(delays, np.int64)
            waited, order = state.period - state.made, _order(state.pulled)
            late = np.maximum(delays[:, state.pulled, order] + 1 - waited[None, :], 1)
            due = state.period + late
            owed = np.array(rewards[:, state.pulled, order], np.float64)
        arms, periods = state.num_arms, self.cdf.shape[1]
        return limits.Delayed(
            self.cdf,
            self.guide,
            self.fixed,
            delays,
            state.pulled,
            state.made,
            np.ascontiguousarray(due, np.int64),
            np.ascontiguousarray(owed),
            np.zeros(1, np.int64),
            np.zeros(periods, np.int64),
            np.zeros(periods, np.int64),
            np.zeros(periods, np.int64),
            np.zeros(periods),
            np.zeros((arms, periods + 2), np.int64),
            np.zeros(periods, np.int64),
            np.zeros(arms + 1, np.int64),
            np.zeros(arms, np.int64),
            np.zeros((arms, periods + 2), np.int64),
            np.zeros((arms, periods + 2), np.int64),
            np.zeros((2, arms), np.int64),
            np.zeros((arms, 2), np.int64),
            np.array([0, 0, -1, -1]),
        )

    def _futures(self) -> int:
        """Rewards of an arm that plans draw."""
        if self.rule.needs & {"index", "path", "separable"}:
            return min(self.most, self.rule.reach or self.most)
        return 1 if "prefix" in self.rule.needs else 0

    def _rule(self) -> Any:
        with self.lock:
            return self.rule.make(self.state)

    def _limits(self, delay: Any) -> limits.Limits:
        made = np.empty(self.state.num_arms, np.int64)
        return limits.Limits(delay, self._purse(), self._end(), made)

    def _run(
        self,
        rewards: np.ndarray,
        seeds: np.ndarray,
        delay: Any,
        periods: np.ndarray,
        length: int,
        given: dict[str, np.ndarray],
    ) -> np.ndarray:
        """given: fields of the family that belong to these rewards."""
        state = self.state
        actions = np.full((seeds.size, length), -1, np.int16)
        family = self.family(self._futures(), self.rule.futures)
        play(
            self._rule(),
            family._replace(**given) if given else family,
            self._limits(delay),
            state.period,
            state.remaining,
            state.counts,
            state.waiting,
            rewards,
            periods,
            np.ascontiguousarray(seeds, np.uint64),
            np.empty(4, np.uint64),
            actions,
        )
        return actions

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
        rewards = np.array(rewards, np.float64)
        ends = np.full(seeds.size, self.state.remaining, np.int64)
        if periods is not None:
            ends = np.minimum(ends, np.asarray(periods, np.int64))
        delays = None if delays is None else np.asarray(delays)

        def delay_of(part: slice) -> Any:
            return self._delay(rewards[part], None if delays is None else delays[part])

        given: dict[str, np.ndarray] = {}
        if self.curves is not None:
            rewards, given["exact"] = self.curves.code(rewards)
            given["curves"] = self.curves.logs
        start = self.start
        if start is not None:  # only the user's model can update the belief
            rule, horizon, state = self._rule(), max(self._futures(), 1), self.state
            separable = "separable" in self.rule.needs
            clouds = CloudPlay(start, rule, self.most, horizon, separable)
            return clouds.played(
                lambda part: self._limits(delay_of(part)), state, rewards, ends, seeds
            )
        cuts = np.linspace(0, seeds.size, min(threads, max(seeds.size, 1)) + 1).astype(int)

        def run(part: slice) -> np.ndarray:
            return self._run(
                rewards[part], seeds[part], delay_of(part), ends[part], self.state.size, given
            )

        parts = [slice(*pair) for pair in itertools.pairwise(cuts.tolist())]
        if len(parts) == 1:
            return Played(run(parts[0]))
        with ThreadPoolExecutor(len(parts)) as pool:
            return Played(np.concatenate(list(pool.map(run, parts))))

    def decisions(self, seeds: np.ndarray) -> np.ndarray:
        ones = np.ones(seeds.size, np.int64)
        return self._run(np.zeros((1, 1, 1)), seeds, self._delay(None, None), ones, 1, {})[:, 0]
