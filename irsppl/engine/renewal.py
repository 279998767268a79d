"""New points for clouds that have degenerated, by importance sampling.

A Gaussian with wide tails is fitted to a cloud; evenly spread points are taken from it and weighed
by the posterior given all data over the density they come from. That costs one posterior density a
point, where MCMC needs many, and leaves no copies. Where the weights come out uneven, the next fit
is to these points; clouds that stay uneven (many latents, several humps) are for MCMC to move.
What is done here to a cloud depends on nothing but itself.
"""

from __future__ import annotations

import functools
from typing import Any, Final, NamedTuple

import jax
import numpy as np
import scipy
from numpy.typing import NDArray

from irsppl.beliefs import kronecker
from irsppl.engine.answers import Answers, rows
from irsppl.inner.arrays import Floats, Ints, Singles, Words
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.rng import KERNEL, seed_state, uniform

# Effective sample sizes, as shares of the points. New points must leave the first; a cloud that is
# fitted to must have the second, or the newest likelihood is raised to a lower power for the fit.
_WANTED: Final = 0.5
_FITTED: Final = 0.1
_HALVINGS: Final = 10
_ROUNDS: Final = 4
# Share of the wider of a proposal's two Gaussians, and the scales of both. Weights stay bounded
# where the posterior has wider tails than the fit; and tails are where exploration is decided: few
# points there, and Thompson sampling explores too little (`benchmarks/thompson_grid.py`).
_WIDE: Final = 0.4
_SCALES: Final = (1.0, 2.0)
_RIDGE: Final = 1e-4
# Kurtosis of a cloud, over that of a Gaussian, above which a small part of it lies far from the
# rest: proposals would miss that, and no weight would tell.
_PEAKED: Final = 2.5
# Shifts of the lattice that proposals are taken from.
_SHIFTS: Final = 64


class Asked(NamedTuple):
    """C clouds of one model that need new points."""

    z: NDArray[np.floating]  # [C, N, d] unconstrained
    before: Floats  # [C, N] weights without the newest reward
    after: Floats  # [C, N] with it; need not add to one
    rewards: NDArray[np.floating]  # [C, L] seen so far, padded with possible ones
    arms: NDArray[np.int32]  # [C, L]
    seen: NDArray[np.int32]  # [C]
    seeds: Words  # [C] of their replications
    number: Ints  # [C] of this move in its replication


class Renewed(NamedTuple):
    """Points of C clouds."""

    params: dict[str, np.ndarray]  # [C, N, ...]; empty where nobody needs them
    z: NDArray[np.floating]  # [C, N, d]
    mu: NDArray[np.floating]  # [C, N, K]
    weights: Floats  # [C, N], adding to one


def renew(model: Answers, asked: Asked) -> tuple[Renewed, NDArray[np.bool_]]:
    """New points for all, and which of them are good enough."""
    points = asked.z.shape[1]
    made, ess, peaked = _proposed(model, asked, 0)
    for turn in range(1, _ROUNDS):
        left = np.flatnonzero((ess < _WANTED * points) & ~peaked)
        if not left.size:
            break
        even = np.full((left.size, points), 1 / points)
        again = rows(asked, left)._replace(z=made.z[left], before=even, after=made.weights[left])
        new, ess[left], _ = _proposed(model, again, turn)
        for kept, own in zip(*map(jax.tree.leaves, (made, new)), strict=True):
            kept[left] = own
    return made, (ess >= _WANTED * points) & ~peaked


def _proposed(model: Answers, asked: Asked, turn: int) -> tuple[Renewed, Any, Any]:
    """Points of laws fitted to what is asked for, weighed; their effective sizes [C], and where
    the clouds were peaked [C]."""
    clouds, points, dim = asked.z.shape
    z, log_proposal = np.empty_like(asked.z), np.empty((clouds, points))
    work = np.empty(4, np.uint64), np.empty(points), np.empty((2, dim)), np.empty((dim, dim))
    peaked = np.empty(clouds, np.bool_)
    numbers, standard = asked.number * _ROUNDS + turn, _standard(points, dim)
    _propose(asked, numbers, standard, work, z, log_proposal, peaked)
    found = model.posteriors(z, asked.rewards, asked.arms, asked.seen)
    weights, ess = np.empty((clouds, points)), np.empty(clouds)
    _weigh(found.log_density, log_proposal, weights, ess)
    return Renewed(found.params, z, found.mu, weights), ess, peaked


@functools.cache
def _standard(points: int, dim: int) -> tuple[Singles, Singles]:
    """Evenly spread points of the proposal for mean 0 and covariance 1, for every shift:
    ([M, N, d], their log-densities but for a constant [M, N])."""
    shift = np.random.default_rng(0).random((_SHIFTS, 1, dim + 1))
    even = (kronecker(points, dim + 1)[None] + shift) % 1
    near, far = _SCALES
    scale = np.where(even[:, :, :1] < _WIDE, far, near)
    tiny = np.finfo(np.float32).eps
    noise = scale * scipy.special.ndtri(np.clip(even[:, :, 1:], tiny, 1 - tiny))
    # In order of the first latent, on which means often depend most: there is less to sort later.
    order = np.argsort(noise[:, :, :1], axis=1)
    noise = np.take_along_axis(noise, order, axis=1).astype(np.float32)
    square = np.sum(noise.astype(np.float64) ** 2, axis=2)
    core = np.log1p(-_WIDE) - 0.5 * square / near**2 - dim * np.log(near)
    tail = np.log(_WIDE) - 0.5 * square / far**2 - dim * np.log(far)
    return noise, np.logaddexp(core, tail).astype(np.float32)


@njit(**KERNEL)
def _temper(before: Any, after: Any, out: Any) -> None:
    """Weights to fit to: those after the newest reward, or between, of a sufficient size."""
    power = 1.0
    for _ in range(_HALVINGS):
        total, squares = 0.0, 0.0
        for j in range(out.size):
            w = after[j]
            if power < 1.0 and before[j] > 0.0:
                w = before[j] * (w / before[j]) ** power
            out[j] = w
            total += w
            squares += w * w
        if total * total >= _FITTED * out.size * squares:
            break
        power *= 0.5


@njit(**KERNEL)
def _fit(z: Any, weights: Any, mean: Any, root: Any) -> None:
    """Mean [d] of weighted points and a lower triangular root [d, d] of their covariance."""
    points, dim = z.shape
    total = 0.0
    mean[:] = 0.0
    root[:] = 0.0
    for j in range(points):
        for i in range(dim):
            if not np.isfinite(z[j, i]):  # a latent at the very end of its range
                weights[j] = 0.0
        if weights[j] > 0.0:
            total += weights[j]
            for i in range(dim):
                mean[i] += weights[j] * z[j, i]
    for i in range(dim):
        mean[i] /= total
    for j in range(points):
        if weights[j] > 0.0:
            for i in range(dim):
                off = weights[j] / total * (z[j, i] - mean[i])
                for k in range(i + 1):
                    root[i, k] += off * (z[j, k] - mean[k])
    for i in range(dim):
        root[i, i] = root[i, i] * (1.0 + _RIDGE) + 1e-24
        for k in range(i + 1):
            value = root[i, k]
            for m in range(k):
                value -= root[i, m] * root[k, m]
            root[i, k] = np.sqrt(max(value, 1e-24)) if i == k else value / root[k, k]


@njit(**KERNEL)
def _kurtosis(z: Any, weights: Any, mean: Any, root: Any, white: Any) -> float:
    """Of weighted points in terms of their fit, over that of a Gaussian; white [d] is work."""
    dim = z.shape[1]
    total, fourth = 0.0, 0.0
    for j in range(weights.size):
        if weights[j] > 0.0:
            square = 0.0
            for i in range(dim):
                value = z[j, i] - mean[i]
                for k in range(i):
                    value -= root[i, k] * white[k]
                white[i] = value / root[i, i]
                square += white[i] * white[i]
            total += weights[j]
            fourth += weights[j] * square * square
    return fourth / (total * dim * (dim + 2))


@njit(**KERNEL)
def _propose(
    asked: Asked, numbers: Any, standard: Any, work: Any, out: Any, log_proposal: Any, peaked: Any
) -> None:
    """Points [C, N, d] of the fitted laws and their log-densities [C, N], but for a constant.

    numbers [C]: of random choices within a replication; work: a state [4], weights [N], means
    [2, d] and a root [d, d].
    """
    z, (noise, log_densities), (state, weights, means, root) = asked.z, standard, work
    mean = means[0]
    for c in range(z.shape[0]):
        _temper(asked.before[c], asked.after[c], weights)
        _fit(z[c], weights, mean, root)
        peaked[c] = _kurtosis(z[c], weights, mean, root, means[1]) > _PEAKED
        # The seed itself belongs to the replication's decisions.
        seed_state(asked.seeds[c] ^ np.uint64(numbers[c] + 1), state)
        m = np.int64(uniform(state) * noise.shape[0])
        for j in range(z.shape[1]):
            log_proposal[c, j] = log_densities[m, j]
            for i in range(mean.size):
                value = mean[i]
                for k in range(i + 1):
                    value += root[i, k] * noise[m, j, k]
                out[c, j, i] = value


@njit(**KERNEL)
def _weigh(logs: Any, log_proposal: Any, weights: Any, ess: Any) -> None:
    """Weights that add to one, of points with log-densities under both laws; all [C, N]."""
    for c in range(logs.shape[0]):
        top = -np.inf
        for j in range(logs.shape[1]):
            top = max(top, logs[c, j] - log_proposal[c, j])
        total, squares = 0.0, 0.0
        for j in range(logs.shape[1]):
            w = np.exp(logs[c, j] - log_proposal[c, j] - top) if top > -np.inf else 0.0
            weights[c, j] = w
            total += w
            squares += w * w
        ess[c] = total * total / squares if squares > 0.0 else 0.0
        for j in range(logs.shape[1]):
            weights[c, j] = weights[c, j] / total if squares > 0.0 else 1.0 / logs.shape[1]
