"""Whole simulated paths of the sampling rules, one replication per random stream.

Every kernel here walks one replication after another and reads nothing but that replication's
rewards and seed, so a batch may be cut into chunks at will; the kernels release the GIL, and the
chunks can run in a ``ThreadPoolExecutor``.

A rule is an integer code and a branch in :func:`_choose`.  Rules that need tables or a loop of
their own (``irs.index``, ``irs.v-emax``) live in modules of their own with the same signature as
:func:`simulate_paths` without the rule; a caller picks the module by name.
"""

from typing import Final, TypeAlias

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from irsppl.inner.cpu import allocation, families, rng
from irsppl.inner.cpu.allocation import PAD
from irsppl.inner.cpu.rng import KERNEL

__all__ = ["RULES", "decide", "simulate_paths"]

_RANDOM: Final = 0
_GREEDY: Final = 1
_TS: Final = 2
_FH: Final = 3
_V_ZERO: Final = 4

RULES: Final[dict[str, int]] = {
    "random": _RANDOM,
    "greedy": _GREEDY,
    "ts": _TS,
    "irs.fh": _FH,
    "irs.v-zero": _V_ZERO,
}
"""Names of the rules that these kernels know, with their codes."""


# Work arrays of one call, in this order: cells, marks and least of `allocation.workspace`, and
# counts [K].  They are handed down because the kernels must not allocate (see `KERNEL`).
_Scratch: TypeAlias = tuple[
    NDArray[np.float32], NDArray[np.int64], NDArray[np.float64], NDArray[np.int32]
]


@njit(**KERNEL)
def _v_zero(
    state: NDArray[np.uint64],
    family: int,
    xi: NDArray[np.float64],
    nu: NDArray[np.float64],
    noise_sd: NDArray[np.float64],
    remaining: int,
    horizon: int,
    scratch: _Scratch,
) -> int:
    """Arm with the most pulls in the best allocation of one sampled future (IRS.V-Zero)."""
    cells, marks, least, counts = scratch
    num_arms = xi.size
    stride = allocation.row_stride(horizon)
    for a in range(num_arms):
        start = a * stride + PAD
        cells[start] = 0.0
        least[a] = families.sample_path(
            state, family, xi[a], nu[a], noise_sd[a], remaining, cells, start + 1, True
        )
    allocation.solve(cells, marks, least, num_arms, horizon, remaining, counts)
    chosen = 0
    for a in range(1, num_arms):
        if counts[a] > counts[chosen]:
            chosen = a
    return chosen


@njit(**KERNEL)
def _choose(
    rule: int,
    state: NDArray[np.uint64],
    family: int,
    xi: NDArray[np.float64],
    nu: NDArray[np.float64],
    noise_sd: NDArray[np.float64],
    remaining: int,
    horizon: int,
    scratch: _Scratch,
) -> int:
    """Arm to pull with ``remaining`` periods left, this one included; ties to the lowest index."""
    num_arms = xi.size
    if rule == _RANDOM:
        return int(rng.uniform(state) * num_arms)
    if rule == _V_ZERO:
        return _v_zero(state, family, xi, nu, noise_sd, remaining, horizon, scratch)
    chosen = 0
    best = -np.inf
    for a in range(num_arms):
        if rule == _GREEDY:
            score = xi[a] / nu[a]
        elif rule == _TS:
            score = families.sample_mean(state, family, xi[a], nu[a], noise_sd[a])
        else:
            n = remaining - 1
            earned = families.sample_sum(state, family, xi[a], nu[a], noise_sd[a], n)
            score = (xi[a] + earned) / (nu[a] + n)
        if score > best:
            best = score
            chosen = a
    return chosen


@njit(**KERNEL)
def _simulate(
    rule: int,
    family: int,
    xi0: NDArray[np.float64],
    nu0: NDArray[np.float64],
    noise_sd: NDArray[np.float64],
    rewards: NDArray,
    seeds: NDArray[np.uint64],
    state: NDArray[np.uint64],
    belief: NDArray[np.float64],
    pulls: NDArray[np.int64],
    scratch: _Scratch,
    actions: NDArray[np.int16],
) -> None:
    """Fill ``actions`` [S, T]; ``belief`` [2, K] and ``pulls`` [K] are work arrays."""
    num_arms = xi0.size
    horizon = actions.shape[1]
    xi, nu = belief[0], belief[1]
    for s in range(seeds.size):
        rng.seed_state(seeds[s], state)
        for a in range(num_arms):
            xi[a], nu[a], pulls[a] = xi0[a], nu0[a], 0
        for t in range(horizon):
            a = _choose(rule, state, family, xi, nu, noise_sd, horizon - t, horizon, scratch)
            actions[s, t] = a
            xi[a] += rewards[s, a, pulls[a]]
            nu[a] += 1.0
            pulls[a] += 1


@njit(**KERNEL)
def _decide(
    rule: int,
    family: int,
    xi: NDArray[np.float64],
    nu: NDArray[np.float64],
    noise_sd: NDArray[np.float64],
    remaining: int,
    seeds: NDArray[np.uint64],
    state: NDArray[np.uint64],
    scratch: _Scratch,
    chosen: NDArray[np.int16],
) -> None:
    """Fill ``chosen`` [S]."""
    for s in range(seeds.size):
        rng.seed_state(seeds[s], state)
        chosen[s] = _choose(rule, state, family, xi, nu, noise_sd, remaining, remaining, scratch)


def _code(rule: str) -> int:
    if rule not in RULES:
        raise ValueError(f"rule must be one of {', '.join(RULES)}, got {rule!r}")
    return RULES[rule]


def _arms(
    xi: ArrayLike, nu: ArrayLike, noise_sd: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """The arms' states as contiguous float64 [K]; a scalar noise serves every arm."""
    xi = np.ascontiguousarray(xi, np.float64)
    nu = np.ascontiguousarray(nu, np.float64)
    if xi.ndim != 1 or xi.size == 0 or nu.shape != xi.shape:
        raise ValueError(f"xi and nu must be of one shape [K], got {xi.shape} and {nu.shape}")
    noise_sd = np.ascontiguousarray(np.broadcast_to(np.asarray(noise_sd, np.float64), xi.shape))
    return xi, nu, noise_sd


def _scratch(rule: int, num_arms: int, horizon: int) -> _Scratch:
    """Work arrays of one call; only V-Zero needs more than a token."""
    size = horizon if rule == _V_ZERO else 0
    return *allocation.workspace(num_arms, size), np.empty(num_arms, np.int32)


def simulate_paths(
    rule: str,
    family: int,
    xi: ArrayLike,
    nu: ArrayLike,
    noise_sd: ArrayLike,
    rewards: NDArray,
    seeds: NDArray[np.uint64],
) -> NDArray[np.int16]:
    """Play a rule to the end of the horizon, once per replication.

    Parameters
    ----------
    rule
        A key of :data:`RULES`.
    family
        A family code of :mod:`irsppl.inner.cpu.families`.
    xi, nu, noise_sd
        The prior's natural state, [K] each; ``noise_sd`` is used by Gaussian rewards only.
    rewards
        float32 or float64 [S, K, T]: ``rewards[s, a, n]`` is what pull number n of arm a earns in
        replication s.
    seeds
        uint64 [S], from :func:`irsppl.inner.cpu.rng.streams`.

    Returns
    -------
    int16 [S, T]
        The arm pulled in each period.
    """
    code = _code(rule)
    xi, nu, noise_sd = _arms(xi, nu, noise_sd)
    rewards = np.ascontiguousarray(rewards)
    if rewards.dtype != np.float32:
        rewards = rewards.astype(np.float64, copy=False)
    seeds = np.ascontiguousarray(seeds, np.uint64)
    if rewards.ndim != 3 or rewards.shape[:2] != (seeds.size, xi.size):
        raise ValueError(
            f"rewards must have shape [{seeds.size}, {xi.size}, T] to match seeds and arms, "
            f"got {rewards.shape}"
        )
    horizon = rewards.shape[2]
    actions = np.empty((seeds.size, horizon), np.int16)
    _simulate(
        code,
        family,
        xi,
        nu,
        noise_sd,
        rewards,
        seeds,
        np.empty(4, np.uint64),
        np.empty((2, xi.size)),
        np.empty(xi.size, np.int64),
        _scratch(code, xi.size, horizon),
        actions,
    )
    return actions


def decide(
    rule: str,
    family: int,
    xi: ArrayLike,
    nu: ArrayLike,
    noise_sd: ArrayLike,
    remaining: int,
    seeds: NDArray[np.uint64],
) -> NDArray[np.int16]:
    """One decision from one state with ``remaining`` periods left, for each of S seeds: int16 [S].

    The other arguments are those of :func:`simulate_paths`.  With ``remaining`` equal to the
    horizon, the decisions are the first actions of the paths with the same seeds.
    """
    code = _code(rule)
    xi, nu, noise_sd = _arms(xi, nu, noise_sd)
    if remaining < 1:
        raise ValueError(f"remaining must be at least 1, got {remaining}")
    seeds = np.ascontiguousarray(seeds, np.uint64)
    chosen = np.empty(seeds.size, np.int16)
    _decide(
        code,
        family,
        xi,
        nu,
        noise_sd,
        remaining,
        seeds,
        np.empty(4, np.uint64),
        _scratch(code, xi.size, remaining),
        chosen,
    )
    return chosen
