"""Futures by number: the same ones for every policy and bound, drawn and dropped chunk by chunk."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irsppl._checks import numbered_keys
from irsppl._fields import assemble
from irsppl._xla_options import filter_jit, lean
from irsppl.bandit import Bandit
from irsppl.beliefs import ExactLaws, InKernels
from irsppl.outcomes import Outcome
from irsppl.policies.paths import seeds_of

# Rewards of one chunk of replications take at most about this much memory.
_CHUNK_BYTES = 64 * 2**20
# Replications in a chunk: few sizes, so that another number of replications compiles nothing new.
_CHUNKS = (16, 128, 1024)


def draw_outcomes(
    bandit: Bandit, key: Array, start: int, count: int, means: Array | None = None
) -> Outcome:
    """Futures number start, ..., start + count - 1, stacked; number s depends on (key, s) only.

    Natural families on a CPU are drawn by a kernel, for which nothing has to be compiled; their
    streams are not those of XLA. means [K]: of all arms, where they are known.
    """
    if isinstance(bandit.belief, InKernels) and jax.default_backend() == "cpu":
        return _on_host(bandit, key, start, count, means)
    numbers = jnp.asarray(np.arange(start, start + count, dtype=np.uint32))
    return filter_jit(_draw, lean())(bandit, _outcome_key(key), numbers, means)


def warn_of_tails(bandit: Bandit) -> None:
    """For those who average over futures: where a mean has no variance, averages hardly settle."""
    belief = bandit.belief
    arms = belief.without_variance() if isinstance(belief, ExactLaws) else []
    if arms:
        warnings.warn(
            f"the mean reward of arm {bandit.arm_labels[arms[0]]} has an infinite variance under "
            f"{type(belief).__name__}: averages over sampled futures settle slowly, sampled bounds "
            "among them, and their standard errors say too little. Bounds without sampling "
            "(stderr 0.0) are exact all the same; a narrower prior has no such tail",
            stacklevel=3,
        )


def outcome_keys(key: Array, start: int, count: int) -> Array:
    """The keys of futures number start, ..., start + count - 1."""
    return numbered_keys(_outcome_key(key), np.arange(start, start + count, dtype=np.uint32))


def _outcome_key(key: Array) -> Array:
    return jax.random.fold_in(key, 0)


def _draw(bandit: Bandit, key: Array, numbers: Array, means: Array | None) -> Outcome:
    def one(number: Array) -> Outcome:
        own = jax.random.fold_in(key, number)
        if means is None:
            return bandit.sample_truth(own)
        rewards = bandit.belief.sample_rewards_at(own, means, bandit.size)
        return bandit.completed(own, Outcome(means, rewards), running=False)

    return jax.vmap(one)(numbers)


def _on_host(bandit: Bandit, key: Array, start: int, count: int, means: Array | None) -> Outcome:
    from irsppl.inner.cpu.outcomes import draw

    belief: Any = bandit.belief
    arms, dtype = bandit.num_arms, bandit.belief.predictive_mean().dtype
    seeds = np.stack([seeds_of(key, f"future {a}", start, count) for a in range(arms)], axis=1)
    truth = np.empty((count, arms))
    if means is not None:
        truth[:] = np.asarray(means)
    rewards = np.empty((count, arms, bandit.size), dtype)
    draw(*belief.kernel_state(), seeds, np.empty(4, np.uint64), means is not None, truth, rewards)

    def uniforms(what: str) -> Callable[..., np.ndarray]:
        return lambda *shape: _levels(key, what, start, (count, *shape))

    delays = bandit.arrivals.draw(bandit, uniforms("delays"))
    periods = bandit.end.draw(bandit, uniforms("periods"))
    made = {"means": truth.astype(dtype), "rewards": rewards, "delays": delays, "periods": periods}
    return assemble(Outcome, {"belief": None, **jax.tree.map(jnp.asarray, made)})


def _levels(key: Array, what: str, start: int, shape: tuple[int, ...]) -> np.ndarray:
    """Uniform numbers on [0, 1) of futures from number `start` on; shape [S, ...]."""
    from irsppl.inner.cpu.outcomes import fill_uniforms

    levels = np.empty(shape)
    seeds = seeds_of(key, what, start, shape[0])
    fill_uniforms(seeds, np.empty(4, np.uint64), levels.reshape(shape[0], -1))
    return levels


def chunks(bandit: Bandit, total: int, compiled: bool = False) -> list[tuple[int, int, int]]:
    """(start, stop, size) of each chunk: `size` futures are drawn, the last ones may be surplus.

    The size depends on the memory that a future takes, and on the total only in coarse steps:
    arrays of the same shapes serve nearly every total, and programs are compiled for shapes.
    compiled: kernels keep no beliefs along a future, so that it takes its rewards and its own set.
    """
    itemsize = bandit.belief.predictive_mean().dtype.itemsize
    numbers = bandit.belief.footprint(1 if compiled else bandit.size)
    numbers = max(numbers, bandit.num_arms * bandit.size)
    most = max(1, _CHUNK_BYTES // (numbers * itemsize))
    # Two chunks at least, for two cores, unless they are very small.
    fits = [size for size in _CHUNKS if size <= min(most, -(-total // 2))]
    size = fits[-1] if fits else min(most, _CHUNKS[0])
    return [(start, min(start + size, total), size) for start in range(0, total, size)]
