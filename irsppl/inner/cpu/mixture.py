"""The FH / V-Zero mixture (``irs.mix``) on the CPU: batches of inner problems, decisions, paths.

The first n0 pulls of an arm pay mu_hat_0 .. mu_hat_{n0-1} along a sampled future, later ones
mu_hat_{T-1}.  The two cases of the solution are explained in :mod:`irsppl.inner.mixture`; with at
least K n0 periods left a decision costs K n0 draws and O(K^2 n0) additions, whatever T is.

A future is drawn in two stages: n0 - 1 rewards, then, from the belief which those leave, the sum
of the T - n0 rewards up to number T - 1.  Rewards are exchangeable, so redrawing the parameter from
its posterior between the stages gives the same joint law as keeping it.
"""

from typing import TypeAlias

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from irsppl.inner.cpu import allocation, families, rng
from irsppl.inner.cpu.allocation import PAD
from irsppl.inner.cpu.rng import KERNEL

__all__ = ["mix_batch", "mix_decide", "mix_paths"]

# Work arrays of one call: cumulative prefix payoffs [K, n0 + 1], later payoffs [K], cells, marks
# and least of `allocation.workspace`, and counts [K].  Kernels must not allocate (see `KERNEL`).
_Scratch: TypeAlias = tuple[
    NDArray[np.float64],
    NDArray[np.float64],
    NDArray[np.float64],
    NDArray[np.int64],
    NDArray[np.float64],
    NDArray[np.int32],
]


@njit(**KERNEL)
def _best_count(row: NDArray[np.float64], n0: int, slope: float) -> tuple[float, int]:
    """max over m = 0 .. n0 of row[m] - m slope, and the smallest m that attains it."""
    best, chosen = row[0], 0
    for m in range(1, n0 + 1):
        excess = row[m] - m * slope
        if excess > best:
            best, chosen = excess, m
    return best, chosen


@njit(**KERNEL)
def _gain(row: NDArray[np.float64], n0: int, slope: float) -> float:
    """max over m = 0 .. n0 of row[m] - m slope; apart, because without the count it vectorises."""
    best = row[0]
    for m in range(1, n0 + 1):
        excess = row[m] - m * slope
        best = excess if excess > best else best
    return best


@njit(**KERNEL)
def _score(
    sums: NDArray[np.float64],
    later: NDArray[np.float64],
    n0: int,
    total: int,
    top: float,
    b: int,
) -> float:
    """Best value with b as the arm that takes the rest, less ``total * top``."""
    score = total * (later[b] - top) + sums[b, n0] - n0 * later[b]
    for a in range(later.size):
        if a != b:
            score += _gain(sums[a], n0, later[b])
    return score


@njit(**KERNEL)
def _solve_long(
    sums: NDArray[np.float64],
    later: NDArray[np.float64],
    n0: int,
    total: int,
    counts: NDArray[np.int32],
) -> float:
    """At least K n0 pulls: one arm takes what the others leave.

    The arm with the best slope is tried first.  Against the slope of arm b the other arms gain at
    most K n0 (highest - v_b) in all, which for long horizons rules out nearly every other b.
    """
    num_arms = later.size
    first, highest = 0, -np.inf
    for a in range(num_arms):
        first = a if later[a] > later[first] else first
        for m in range(n0):
            step = sums[a, m + 1] - sums[a, m]
            highest = step if step > highest else highest
    top = later[first]
    chosen = first
    best = _score(sums, later, n0, total, top, first)
    for b in range(num_arms):
        fixed = total * (later[b] - top) + sums[b, n0] - n0 * later[b]
        if b == first or fixed + num_arms * n0 * max(0.0, highest - later[b]) < best:
            continue
        score = _score(sums, later, n0, total, top, b)
        if score > best or (score == best and b < chosen):
            best, chosen = score, b
    left = total
    for a in range(num_arms):
        if a != chosen:
            _, count = _best_count(sums[a], n0, later[chosen])
            counts[a] = count
            left -= count
    counts[chosen] = left
    return total * top + best


@njit(**KERNEL)
def _solve(n0: int, total: int, room: int, scratch: _Scratch) -> float:
    """Solve in place for the prefix sums and later payoffs in ``scratch``; writes its counts.

    ``room``: the total that the workspace was made for, min(largest total, K n0).
    """
    sums, later, cells, marks, least, counts = scratch
    num_arms = later.size
    if total >= num_arms * n0:
        return _solve_long(sums, later, n0, total, counts)
    stride = allocation.row_stride(room)
    width = min(n0, total)
    for a in range(num_arms):
        start = a * stride + PAD
        lowest = later[a] if total > n0 else np.inf
        cells[start] = 0.0
        for m in range(1, width + 1):
            step = sums[a, m] - sums[a, m - 1]
            lowest = step if step < lowest else lowest
            cells[start + m] = sums[a, m]
        for m in range(width + 1, total + 1):
            cells[start + m] = sums[a, n0] + (m - n0) * later[a]
        least[a] = lowest
    return allocation.solve(cells, marks, least, num_arms, room, total, counts)


@njit(**KERNEL)
def _choose(
    n0: int,
    state: NDArray[np.uint64],
    family: int,
    xi: NDArray[np.float64],
    nu: NDArray[np.float64],
    noise_sd: NDArray[np.float64],
    remaining: int,
    room: int,
    scratch: _Scratch,
) -> int:
    """Arm with the most pulls in the solution of one sampled future; ties to the lowest index."""
    sums, later, counts = scratch[0], scratch[1], scratch[5]
    num_arms = xi.size
    width = min(n0, remaining)
    for a in range(num_arms):
        # sums[a, n + 1] holds mu_hat_n first, and is summed up afterwards.
        row = sums[a]
        families.sample_path(state, family, xi[a], nu[a], noise_sd[a], width, row, 1)
        known = nu[a] + (width - 1)
        earned = row[width] * known
        rest = remaining - width
        later[a] = earned / known
        if rest > 0:
            earned += families.sample_sum(state, family, earned, known, noise_sd[a], rest)
            later[a] = earned / (known + rest)
        row[0] = 0.0
        for n in range(1, width + 1):
            row[n] += row[n - 1]
    _solve(n0, remaining, room, scratch)
    chosen = 0
    for a in range(1, num_arms):
        if counts[a] > counts[chosen]:
            chosen = a
    return chosen


@njit(**KERNEL)
def _decide(
    n0: int,
    family: int,
    xi: NDArray[np.float64],
    nu: NDArray[np.float64],
    noise_sd: NDArray[np.float64],
    remaining: int,
    seeds: NDArray[np.uint64],
    state: NDArray[np.uint64],
    room: int,
    scratch: _Scratch,
    chosen: NDArray[np.int16],
) -> None:
    for s in range(seeds.size):
        rng.seed_state(seeds[s], state)
        chosen[s] = _choose(n0, state, family, xi, nu, noise_sd, remaining, room, scratch)


@njit(**KERNEL)
def _paths(
    n0: int,
    family: int,
    xi0: NDArray[np.float64],
    nu0: NDArray[np.float64],
    noise_sd: NDArray[np.float64],
    rewards: NDArray,
    seeds: NDArray[np.uint64],
    state: NDArray[np.uint64],
    belief: NDArray[np.float64],
    pulls: NDArray[np.int64],
    room: int,
    scratch: _Scratch,
    actions: NDArray[np.int16],
) -> None:
    """Fill ``actions`` [S, T]; ``belief`` [2, K] and ``pulls`` [K] are work arrays."""
    horizon = actions.shape[1]
    xi, nu = belief[0], belief[1]
    for s in range(seeds.size):
        rng.seed_state(seeds[s], state)
        for a in range(xi0.size):
            xi[a], nu[a], pulls[a] = xi0[a], nu0[a], 0
        for t in range(horizon):
            a = _choose(n0, state, family, xi, nu, noise_sd, horizon - t, room, scratch)
            actions[s, t] = a
            xi[a] += rewards[s, a, pulls[a]]
            nu[a] += 1.0
            pulls[a] += 1


@njit(**KERNEL)
def _batch(
    prefix: NDArray[np.float64],
    later: NDArray[np.float64],
    total: int,
    room: int,
    scratch: _Scratch,
    values: NDArray[np.float64],
    counts: NDArray[np.int32],
) -> None:
    num_problems, num_arms, n0 = prefix.shape
    sums, ends, found = scratch[0], scratch[1], scratch[5]
    for p in range(num_problems):
        for a in range(num_arms):
            ends[a] = later[p, a]
            sums[a, 0] = 0.0
            for n in range(n0):
                sums[a, n + 1] = sums[a, n] + prefix[p, a, n]
        values[p] = _solve(n0, total, room, scratch)
        for a in range(num_arms):
            counts[p, a] = found[a]


# --- the functions others call ----------------------------------------------------------------


def _scratch(num_arms: int, n0: int, total: int) -> tuple[int, _Scratch]:
    """(room, work arrays) for up to ``total`` pulls; the convolution never sees K n0 or more."""
    room = min(total, num_arms * n0)
    cells, marks, least = allocation.workspace(num_arms, room, np.float64)
    sums = np.zeros((num_arms, n0 + 1))
    return room, (sums, np.zeros(num_arms), cells, marks, least, np.zeros(num_arms, np.int32))


def _arms(*fields: ArrayLike) -> list[NDArray[np.float64]]:
    return [np.ascontiguousarray(np.asarray(field, np.float64)) for field in fields]


def _check(n0: int, total: int) -> int:
    """``n0``, cut to ``total``: beyond it nothing changes but the size of the work arrays."""
    if n0 < 1:
        raise ValueError(f"n0 must be at least 1, got {n0}")
    return min(int(n0), total)


def mix_batch(
    prefix: ArrayLike, later: ArrayLike, total: int
) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Best allocations of ``total`` pulls for a batch, in double precision.

    Parameters
    ----------
    prefix
        Payoffs of the first n0 pulls, [problem, arm, n0].
    later
        Payoff of every later pull, [problem, arm].
    total
        Pulls to allocate, at least 1.

    Returns
    -------
    values [problem] and counts int32 [problem, arm].
    """
    prefix, later = _arms(prefix, later)
    if prefix.ndim != 3 or 0 in prefix.shape[1:] or later.shape != prefix.shape[:2]:
        raise ValueError(
            "prefix and later must have shapes [problem, arm, n0] and [problem, arm], "
            f"got {prefix.shape} and {later.shape}"
        )
    if total < 1:
        raise ValueError(f"total must be at least 1, got {total}")
    num_problems, num_arms, n0 = prefix.shape
    values = np.empty(num_problems)
    counts = np.empty((num_problems, num_arms), np.int32)
    room, scratch = _scratch(num_arms, n0, total)
    _batch(prefix, later, total, room, scratch, values, counts)
    return values, counts


def mix_decide(
    n0: int,
    family: int,
    xi: ArrayLike,
    nu: ArrayLike,
    noise_sd: ArrayLike,
    remaining: int,
    seeds: NDArray[np.uint64],
) -> NDArray[np.int16]:
    """One decision from one state with ``remaining`` periods left, for each of S seeds: int16 [S].

    ``family``, ``xi``, ``nu``, ``noise_sd`` as in :mod:`irsppl.inner.cpu.families`.
    """
    xi, nu, noise_sd = _arms(xi, nu, noise_sd)
    if remaining < 1:
        raise ValueError(f"remaining must be at least 1, got {remaining}")
    n0 = _check(n0, remaining)
    seeds = np.ascontiguousarray(seeds, np.uint64)
    chosen = np.empty(seeds.size, np.int16)
    room, scratch = _scratch(xi.size, n0, remaining)
    state = np.empty(4, np.uint64)
    _decide(n0, family, xi, nu, noise_sd, remaining, seeds, state, room, scratch, chosen)
    return chosen


def mix_paths(
    n0: int,
    family: int,
    xi: ArrayLike,
    nu: ArrayLike,
    noise_sd: ArrayLike,
    rewards: NDArray,
    seeds: NDArray[np.uint64],
) -> NDArray[np.int16]:
    """Play ``irs.mix`` to the end of the horizon, once per replication: arms int16 [S, T].

    ``rewards`` [S, K, T] and ``seeds`` [S] as in :func:`irsppl.inner.cpu.paths.simulate_paths`.
    """
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
    n0 = _check(n0, horizon)
    actions = np.empty((seeds.size, horizon), np.int16)
    room, scratch = _scratch(xi.size, n0, horizon)
    _paths(
        n0,
        family,
        xi,
        nu,
        noise_sd,
        rewards,
        seeds,
        np.empty(4, np.uint64),
        np.empty((2, xi.size)),
        np.empty(xi.size, np.int64),
        room,
        scratch,
        actions,
    )
    return actions
