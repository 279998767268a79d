"""`find_kernel`: the one place that decides between compiled kernels and JAX."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

from irsppl._checks import is_concrete
from irsppl.bandit import Bandit
from irsppl.engine import budgets, index, limits, rules, v_zero
from irsppl.engine.clouds import play_clouds
from irsppl.engine.families import family_of, start_of
from irsppl.engine.loops import play
from irsppl.penalties import FH, TS, VZero, VZeroSeparable
from irsppl.policies import IRS, Greedy, Index, Policy, Random
from irsppl.policies.paths import Played

_NEVER = 2**40
# Cells of the guide to the inverse of a delay's distribution function.
_GUIDE = 256


class Kernel(NamedTuple):
    """A policy on a bandit, compiled.

    paths: (rewards [S, K, N], seeds [S], delays [S, K, N] or None, periods [S] or None, threads) ->
    `Played`, arms -1 where none is pulled. decisions: seeds [S] -> arms [S], all from one state.
    """

    paths: Callable[..., Played]
    decisions: Callable[[np.ndarray], np.ndarray]


def find_kernel(policy: Policy, bandit: Bandit) -> Kernel | None:
    """The compiled policy, or None where it has to run in JAX."""
    if jax.default_backend() != "cpu" or not is_concrete(bandit):
        return None
    rule = _rule_of(policy, bandit)
    if rule is None:
        return None
    family = family_of(bandit.belief, rule.needs)
    if family is None:
        return None
    built = _Built(bandit, rule, family)
    return Kernel(built.paths, built.decisions)


class _Rule(NamedTuple):
    make: Callable[[int, int, int], Any]  # (arms, periods, rewards of an arm) -> the part
    needs: frozenset[str]  # of a family: "means", "future means", "path", "index", "separable"
    groups: bool = False  # plans pulls one by one
    blind: bool = False  # does not plan by a law of the horizon


def _rule_of(policy: Policy, bandit: Bandit) -> _Rule | None:
    kind = type(policy)
    if kind is IRS:
        return _sampled(policy.penalty, bandit)  # type: ignore[attr-defined]
    if kind is Index:
        return _index(policy, bandit)  # type: ignore[arg-type]
    if kind is Greedy:
        return _Rule(lambda arms, *_: rules.Greedy(arms), frozenset())
    if kind is Random:
        return _Rule(lambda arms, *_: rules.Random(arms), frozenset())
    return None


def _sampled(penalty: Any, bandit: Bandit) -> _Rule | None:
    kind = type(penalty)
    if kind is TS:
        return _Rule(lambda arms, *_: rules.TS(np.empty(arms)), frozenset({"means"}))
    if kind is FH:
        if bandit.purse is not None and not bandit.belief.is_independent:
            return None
        return _Rule(
            lambda arms, *_: rules.FH(np.empty(arms), np.empty(arms, np.int64)),
            frozenset({"future means"}),
            blind=penalty.form == "survivor",
        )
    separable = kind is VZeroSeparable
    if separable or (kind is VZero and (penalty.form == "sampled" or bandit.survivor is None)):
        if not bandit.belief.is_independent:
            plain = not bandit.constraints - {"horizon law"} and not bandit.pending
            if not separable or not plain:
                return None
            return _Rule(
                lambda arms, periods, _: v_zero.separable(arms, periods), frozenset({"separable"})
            )
        return _Rule(
            lambda arms, periods, rewards: v_zero.v_zero(arms, periods, rewards, separable),
            frozenset({"path"}),
            groups=True,
        )
    return None


def _index(policy: Index, bandit: Bandit) -> _Rule | None:
    if policy.num_futures > 1 or bandit.purse is not None:
        return None
    return _Rule(
        lambda arms, *_: index.Index(np.empty(arms, np.int64), policy.lookahead or 0, policy.star),
        frozenset({"index"}),
    )


class _Built:
    """The state of a bandit on the host, from which each call makes parts of its own."""

    def __init__(self, bandit: Bandit, rule: _Rule, family: Callable[[int], Any]):
        self.rule, self.family, self.belief = rule, family, bandit.belief
        # Rewards of one arm that a plan may know of: those to come and those pending.
        self.size = int(bandit.remaining) + len(bandit.pending)
        self.num_arms = bandit.num_arms
        self.period, self.remaining = int(bandit.period), int(bandit.remaining)
        self.made = np.array(bandit.pending, np.int64)
        record = np.empty(0) if bandit.pulled is None else np.asarray(bandit.pulled)
        self.pulled = record[self.made].astype(np.int64)
        self.columns = np.bincount(self.pulled, minlength=self.num_arms).astype(np.int64)
        # Number of each pending pull among those of its arm.
        self.order = np.array(
            [int(np.sum(self.pulled[:i] == arm)) for i, arm in enumerate(self.pulled)], np.int64
        )
        self.delay = bandit.delay
        if self.delay is not None:
            self.cdf = np.array(self.delay.cdf, np.float64)
            grid = np.arange(_GUIDE) / _GUIDE
            self.guide = np.stack([np.searchsorted(row, grid, side="right") for row in self.cdf])
            fixed = self.delay.fixed
            self.fixed = np.array([-1] * self.num_arms if fixed is None else fixed, np.int64)
        self.survivor = None if bandit.law is None else np.array(bandit.law.values, np.float64)
        self.purse, self.capped = bandit.purse, bandit.capped
        self.periods = bandit.size

    def _end(self) -> Any:
        if self.survivor is None or self.rule.blind:
            return limits.Sure(0)
        return limits.Ending(self.survivor)

    def _purse(self) -> Any:
        if self.purse is None:
            return budgets.Free(0)
        p = self.purse
        return budgets.purse(
            p.costs, int(p.money), p.step, p.cells, self.capped, self.remaining, self.rule.groups
        )

    def _delay(self, rewards: np.ndarray | None, delays: np.ndarray | None) -> Any:
        if self.delay is None:
            return limits.Waiting(self.columns) if self.pulled.size else limits.Prompt(0)
        if delays is None or rewards is None:
            due, owed = np.full((1, self.pulled.size), _NEVER), np.zeros((1, self.pulled.size))
            delays = np.zeros((1, 1, 1), np.int64)
        else:
            delays = np.array(delays, np.int64)
            waited = self.period - self.made
            late = np.maximum(delays[:, self.pulled, self.order] + 1 - waited[None, :], 1)
            due = self.period + late
            owed = np.array(rewards[:, self.pulled, self.order], np.float64)
        arms, periods = self.num_arms, self.cdf.shape[1]
        return limits.Delayed(
            self.cdf,
            self.guide,
            self.fixed,
            delays,
            self.pulled,
            self.made,
            np.ascontiguousarray(due, np.int64),
            np.ascontiguousarray(owed),
            np.zeros(1, np.int64),
            np.zeros(periods, np.int64),
            np.zeros(periods, np.int64),
            np.zeros(periods, np.int64),
            np.zeros(periods),
            np.zeros(arms, np.int64),
            np.zeros((arms, periods + 2), np.int64),
            np.zeros((arms, periods + 2), np.int64),
            np.zeros((arms, 2), np.int64),
            np.zeros(2, np.int64),
        )

    def _run(
        self, rewards: np.ndarray, seeds: np.ndarray, delay: Any, periods: np.ndarray, length: int
    ) -> np.ndarray:
        arms = self.num_arms
        actions = np.full((seeds.size, length), -1, np.int16)
        futures = self.size if self.rule.needs & {"index", "path", "separable"} else 0
        play(
            self.rule.make(arms, self.remaining, self.size),
            self.family(futures),
            limits.Limits(delay, self._purse(), self._end()),
            self.period,
            self.remaining,
            self.columns,
            rewards,
            periods,
            np.ascontiguousarray(seeds, np.uint64),
            np.empty(4, np.uint64),
            np.empty(arms, np.int64),
            actions,
        )
        return actions

    def paths(
        self,
        rewards: np.ndarray,
        seeds: np.ndarray,
        delays: np.ndarray | None = None,
        periods: np.ndarray | None = None,
        threads: int = 1,
    ) -> Played:
        rewards = np.array(rewards, np.float64)
        ends = np.full(seeds.size, self.remaining, np.int64)
        if periods is not None:
            ends = np.minimum(ends, np.asarray(periods, np.int64))
        delays = None if delays is None else np.asarray(delays)
        start = start_of(self.belief, self.rule.needs)
        if start is not None:
            return self._clouds(start, rewards, seeds, delays, ends)
        cuts = np.linspace(0, seeds.size, min(threads, max(seeds.size, 1)) + 1).astype(int)

        def run(part: slice) -> np.ndarray:
            own = rewards[part]
            delay = self._delay(own, None if delays is None else delays[part])
            return self._run(own, seeds[part], delay, ends[part], self.periods)

        parts = [slice(*pair) for pair in itertools.pairwise(cuts.tolist())]
        if len(parts) == 1:
            return Played(run(parts[0]))
        with ThreadPoolExecutor(len(parts)) as pool:
            return Played(np.concatenate(list(pool.map(run, parts))))

    def _clouds(
        self,
        start: Any,
        rewards: np.ndarray,
        seeds: np.ndarray,
        delays: np.ndarray | None,
        ends: np.ndarray,
    ) -> Played:
        """Replications side by side, where only the user's model can update a belief."""

        def limits_of(part: slice) -> limits.Limits:
            delay = self._delay(rewards[part], None if delays is None else delays[part])
            return limits.Limits(delay, self._purse(), self._end())

        return play_clouds(
            start,
            self.rule.make(self.num_arms, self.remaining, self.size),
            self.rule.needs,
            limits_of,
            (self.period, self.remaining, self.columns),
            (rewards, ends, np.ascontiguousarray(seeds, np.uint64)),
            self.periods,
        )

    def decisions(self, seeds: np.ndarray) -> np.ndarray:
        ones = np.ones(seeds.size, np.int64)
        return self._run(np.zeros((1, 1, 1)), seeds, self._delay(None, None), ones, 1)[:, 0]
