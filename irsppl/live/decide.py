"""Decisions of an experiment, from its state and random numbers that anyone can draw again.

A decision looks at several sampled futures: each gives an arm, and one of them is played. Given the
futures, the probability of playing an arm is the share of futures that gave it, so a propensity is
exact in the sense that weights 1 / propensity are unbiased (with a floor, for every open arm).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from numba import njit

from irsppl._checks import side_key
from irsppl.engine import kernel as engine_kernel
from irsppl.inner.cpu import families, rng
from irsppl.inner.cpu.rng import KERNEL, streams
from irsppl.live.beliefs import HostBelief
from irsppl.live.state import State
from irsppl.policies import Index, Policy
from irsppl.policies._base import DecisionKernel
from irsppl.policies.paths import label_hash
from irsppl.simulation import _decide_many

# Futures of one decision. The propensity is a multiple of 1 / FUTURES, mixed with the floor.
FUTURES = 32
_FLOOR, _PENDING = label_hash("experiment floor"), label_hash("experiment pending")


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
    compiled: bool  # whether a CPU kernel decides from numbers on the host
    futures: int  # sampled for each decision
    stream: int  # the policy's own number
    # The policy's method, held because Equinox makes a new object at each look.
    decisions: Callable[[Any], DecisionKernel | None]

    def words(self) -> tuple[int, int]:
        return self.seed & 0xFFFFFFFF, (self.seed >> 32) & 0xFFFFFFFF


def plan_for(policy: Policy, seed: int, floor: float, start: Any) -> Plan:
    compiled = (
        jax.default_backend() == "cpu"
        and not start.constraints
        and start.belief.kernel_state() is not None
        and policy.traceable
        and policy.decisions(start) is not None
    )
    futures = 1 if policy.deterministic else FUTURES
    stream = label_hash(policy.name)
    return Plan(policy, seed, floor, compiled, futures, stream, policy.decisions)


def decide(plan: Plan, state: State) -> Choice:
    """The next decision of this state."""
    arms = state.open_arms
    seeds = streams(plan.words(), plan.stream, state.period * FUTURES, plan.futures)
    found = None
    if plan.compiled and isinstance(state.held, HostBelief):
        found = _drawn_on_host(plan, state, arms, seeds)
    drawn = _drawn_from_bandit(plan, state, seeds) if found is None else found
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


class _View:
    """What decision kernels look at in a bandit, from numbers on the host."""

    def __init__(self, natural: Any, state: State, arms: list[int]):
        self.natural = natural
        self.belief = self
        self.num_arms, self.period = len(arms), state.period
        self.remaining, self.horizon = state.remaining, state.horizon
        self.size = state.horizon
        self.counts = state.counts[arms]

    def kernel_state(self) -> Any:
        return self.natural


def _drawn_on_host(
    plan: Plan, state: State, arms: list[int], seeds: np.ndarray
) -> np.ndarray | None:
    """None where the kernel does not serve the arms that are open now."""
    assert isinstance(state.held, HostBelief)
    family, xi, nu, noise = state.held.natural()
    xi, nu, noise, waiting = xi[arms], nu[arms], noise[arms], state.waiting[arms]

    def kernel(xi: np.ndarray, nu: np.ndarray) -> Any:
        view: Any = _View((family, xi, nu, noise), state, arms)
        return plan.decisions(view)

    if not waiting.any():
        decisions = kernel(xi, nu)
        return None if decisions is None else np.asarray(decisions(seeds), np.int64)
    # Rewards that are pending arrive in each future before anything else (see Mix's `settled`).
    own = streams(plan.words(), _PENDING, state.period * FUTURES, len(seeds))
    sums = _pending_sums(family, xi, nu, noise, waiting, own)
    after, many = xi + sums, np.ascontiguousarray(np.broadcast_to(nu + waiting, sums.shape))
    if isinstance(plan.policy, Index):  # its kernel takes one belief per future
        return np.asarray(kernel(after, many)(seeds), np.int64)
    each = [kernel(after[i], many[i]) for i in range(len(seeds))]
    if any(decisions is None for decisions in each):
        return None
    return np.array([decisions(seeds[i : i + 1])[0] for i, decisions in enumerate(each)], np.int64)


@njit(**KERNEL)
def _settle(
    family: int,
    xi: np.ndarray,
    nu: np.ndarray,
    noise: np.ndarray,
    waiting: np.ndarray,
    seeds: np.ndarray,
    state: np.ndarray,
    out: np.ndarray,
) -> None:
    for s in range(seeds.shape[0]):
        rng.seed_state(seeds[s], state)
        for a in range(xi.shape[0]):
            out[s, a] = families.sample_sum(state, family, xi[a], nu[a], noise[a], waiting[a])


def _pending_sums(
    family: int,
    xi: np.ndarray,
    nu: np.ndarray,
    noise: np.ndarray,
    waiting: np.ndarray,
    seeds: np.ndarray,
) -> np.ndarray:
    """`[S, K]`: the sum of each arm's pending rewards, drawn from the belief in each future."""
    out = np.empty((len(seeds), len(xi)))
    _settle(family, xi, nu, noise, waiting, seeds, np.empty(4, np.uint64), out)
    return out


def _drawn_from_bandit(plan: Plan, state: State, seeds: np.ndarray) -> np.ndarray:
    """From the bandit itself: by the engine where it has the policy compiled, else in JAX."""
    bandit = state.bandit()
    plan.policy.verify(bandit)
    bandit = bandit._without_record()
    kernel = engine_kernel(plan.policy, bandit)
    if kernel is not None:
        return np.asarray(kernel.decisions(seeds), np.int64)
    key = jax.random.key(plan.seed & 0xFFFFFFFF)
    key = jax.random.fold_in(side_key(key, plan.policy.name), plan.seed >> 32)
    key = jax.random.fold_in(key, state.period)
    keys = jax.random.split(key, plan.futures)
    if not plan.policy.traceable:
        return np.array([int(plan.policy(one, bandit)) for one in keys])
    return np.asarray(_decide_many(plan.policy, keys[None, :], bandit), np.int64)
