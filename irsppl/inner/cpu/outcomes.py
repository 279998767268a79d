"""Futures of the natural families, many at once, without a program of XLA.

Every arm of every future has a stream of its own: a longer future extends a shorter one, and
neither the number of futures nor that of arms changes a draw.
"""

from __future__ import annotations

import math

from numpy.typing import NDArray

from irsppl.inner.arrays import Floats, Words
from irsppl.inner.cpu import rng
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.families import BETA_BERNOULLI, GAMMA_EXPONENTIAL, NORMAL_NORMAL, sample_mean
from irsppl.inner.cpu.rng import KERNEL


@njit(**KERNEL)
def draw(
    family: int,
    xi: Floats,
    nu: Floats,
    sd: Floats,
    seeds: Words,
    state: Words,
    known: bool,
    means: Floats,
    rewards: NDArray,
) -> None:
    """Fill ``means`` [S, K], unless they are known, and ``rewards`` [S, K, N].

    ``xi, nu, sd`` [K]: the belief. ``seeds`` [S, K]. ``state`` [4] is scratch.
    """
    for s in range(seeds.shape[0]):
        for a in range(seeds.shape[1]):
            rng.seed_state(seeds[s, a], state)
            if not known:
                means[s, a] = sample_mean(state, family, xi[a], nu[a], sd[a])
            mean = means[s, a]
            if family == BETA_BERNOULLI:
                for n in range(rewards.shape[2]):
                    rewards[s, a, n] = 1.0 if rng.uniform(state) < mean else 0.0
            elif family == NORMAL_NORMAL:
                for n in range(rewards.shape[2]):
                    rewards[s, a, n] = mean + sd[a] * rng.normal(state)
            elif family == GAMMA_EXPONENTIAL:
                for n in range(rewards.shape[2]):
                    rewards[s, a, n] = mean * rng.exponential(state)
            else:
                none = math.exp(-mean)
                for n in range(rewards.shape[2]):
                    if mean < rng.POISSON_SWITCH:
                        rewards[s, a, n] = rng.poisson_inversion(state, mean, none)
                    else:
                        rewards[s, a, n] = rng.poisson(state, mean)


@njit(**KERNEL)
def fill_uniforms(seeds: Words, state: Words, out: Floats) -> None:
    """``out`` [S, N], row s from the stream of ``seeds[s]``."""
    for s in range(seeds.size):
        rng.seed_state(seeds[s], state)
        for n in range(out.shape[1]):
            out[s, n] = rng.uniform(state)
