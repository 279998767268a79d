"""Decisions of an experiment, from its state and random numbers that anyone can draw again.

A decision looks at several sampled futures: each gives an arm, and one of them is played. Given the
futures, the probability of playing an arm is the share of futures that gave it, so a propensity is
exact in the sense that weights 1 / propensity are unbiased (with a floor, for every open arm).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from irsppl._checks import side_key
from irsppl.beliefs import InKernels
from irsppl.engine import Kernel, kernel
from irsppl.engine.situation import NaturalState, Situation
from irsppl.inner.cpu.rng import streams
from irsppl.live.beliefs import HostBelief
from irsppl.live.state import State
from irsppl.policies import Policy
from irsppl.policies.function import ArmCheck
from irsppl.policies.generators import seed_of, seeded
from irsppl.policies.paths import label_hash
from irsppl.simulation import decide_many

# Futures of one decision. The propensity is a multiple of 1 / FUTURES, mixed with the floor.
FUTURES = 32
_FLOOR = label_hash("experiment floor")


@dataclasses.dataclass(frozen=True)
class Choice:
    """One decision and what it came from."""

    arm: int  # among all arms; -1: the policy would rather stop
    propensity: float
    shares: np.ndarray  # [K] probability of every arm at that moment
    drawn: np.ndarray  # arms that the sampled futures gave
    uniform: float | None  # the random number that the floor was drawn with


@dataclasses.dataclass(frozen=True)
class Plan:
    """How an experiment decides: all that is the same from period to period."""

    policy: Policy
    seed: int
    floor: float
    on_host: bool  # whether two numbers per arm say all that kernels ask
    futures: int  # sampled for each decision
    stream: int  # the policy's own number

    def words(self) -> tuple[int, int]:
        return self.seed & 0xFFFFFFFF, (self.seed >> 32) & 0xFFFFFFFF


def plan_for(policy: Policy, seed: int, floor: float, start: Any) -> Plan:
    on_host = (
        jax.default_backend() == "cpu"
        and not start.constraints
        and isinstance(start.belief, InKernels)
        and policy.traceable
    )
    futures = 1 if policy.deterministic else FUTURES
    stream = label_hash(policy.name)
    return Plan(policy.begun(start), seed, floor, on_host, futures, stream)


def decide(plan: Plan, state: State) -> Choice:
    """The next decision of this state."""
    arms = state.open_arms
    seeds = streams(plan.words(), plan.stream, state.period * FUTURES, plan.futures)
    drawn = _drawn(plan, state, arms, seeds)
    drawn = np.where(drawn >= 0, np.asarray(arms)[drawn], -1)
    shares = np.bincount(drawn[drawn >= 0], minlength=state.num_arms) / len(drawn)
    played, uniform = int(drawn[0]), None
    if plan.floor > 0:
        able = state.affordable
        rest = 1 - plan.floor * len(able)
        shares = rest * shares
        shares[able] += plan.floor
        word = streams(plan.words(), _FLOOR, state.period, 1)[0]
        uniform = float(word >> np.uint64(11)) * 2.0**-53
        if uniform >= rest:
            played = able[min(int((uniform - rest) / plan.floor), len(able) - 1)]
    propensity = float(shares[played]) if played >= 0 else float(1 - shares.sum())
    return Choice(played, propensity, shares, drawn, uniform)


def _on_host(plan: Plan, state: State, arms: list[int]) -> Kernel | None:
    """The kernel from two numbers per arm, without a bandit; None where there is none."""
    from irsppl.engine.dispatch import kernel_for

    assert isinstance(state.held, HostBelief)
    family, *fields = state.held.natural()
    return kernel_for(
        plan.policy,
        Situation(
            NaturalState(family, *(np.ascontiguousarray(field[arms]) for field in fields)),
            state.period,
            state.remaining,
            state.horizon,
            state.tries[arms],
            np.array(state.waiting[arms], np.int64),
        ),
    )


def _drawn(plan: Plan, state: State, arms: list[int], seeds: np.ndarray) -> np.ndarray:
    """Arms among the open ones, one for each future."""
    found, bandit = None, None
    if plan.on_host and isinstance(state.held, HostBelief):
        found = _on_host(plan, state, arms)
    if found is None:
        bandit = state.bandit()
        plan.policy.verify(bandit)
        bandit = bandit.without_record()
        found = kernel(plan.policy, bandit)
    if found is not None and found.decisions is not None:
        return np.asarray(found.decisions(seeds), np.int64)
    assert bandit is not None
    key = jax.random.key(plan.seed & 0xFFFFFFFF)
    key = jax.random.fold_in(side_key(key, plan.policy.name), plan.seed >> 32)
    key = jax.random.fold_in(key, state.period)
    keys, read = jax.random.split(key, plan.futures), ArmCheck(plan.policy.name, bandit)
    if plan.policy.traceable:
        made = np.asarray(decide_many(plan.policy, keys[None, :], bandit), np.int64).tolist()
    else:
        with seeded(key):
            players = [(one, plan.policy.player(seed_of(one), bandit)) for one in keys]
            made = [player.decide(one, bandit) for one, player in players]
    return np.array([read(arm) for arm in made])
