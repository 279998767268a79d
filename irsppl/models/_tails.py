"""Whether the mean reward itself has a mean, and a variance, under the prior.

How heavy the tail of mu(theta) is can be read off draws (the Pareto k that PSIS uses), but draws
stop at one in their number: a log-normal and a law without mean look alike there. Where the prior
is a map from normal scores z, the tail can be followed much farther: the largest mean M(r) at
distance r from the centre grows like exp(k r^2 / 2) for a power tail with index k, and ever more
slowly than that, k falling like 1 / r, where all moments are finite.
"""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from irsppl._xla_options import quick
from irsppl.models._model import ArmModel

_DRAWS = 20_000
_RADII = (3.5, 5.0, 6.5)  # 6.5: one in 2e10; what is rarer than that plays no part
_STARTS = 16  # per tail
_TURNS = 3  # of the search for the worst direction
_POINTS = 4096
_BATCH = 1024
_LIGHT = 0.2  # Pareto k of draws below which a tail is light beyond doubt (standard error 0.09)
# Index by which a power tail may miss 1 or 1/2 by rounding and finite differences.
_SLACK = 0.01
# k falls between the radii at least like r^-1/2: lighter than any power.
_FALLING = 0.5


def check_tail(model: ArmModel, means: np.ndarray, say: str) -> None:
    """Refuse a prior without a finite mean reward; warn where its variance is infinite.

    means: mean rewards at draws from the prior. Where these have a light tail, as those of a normal
    law do, nobody looks farther.
    """
    bounded = np.isfinite(model.support.low) and np.isfinite(model.support.high)
    if bounded or model.reward_values is not None:
        return
    if max(pareto_k(means), pareto_k(-means)) < _LIGHT:
        return
    far = _far_index(model) if model.has_icdf else None
    index, how = far if far is not None else (_near_index(model), f"{_DRAWS} draws")
    if np.isnan(index):
        return
    problem = (
        f"under the prior the mean reward has a tail of Pareto index k = {index:.2f} (from {how})"
    )
    cure = (
        "narrow the prior (the usual culprits are a scale on the log scale, such as the sigma of a "
        "LogNormal under HalfNormal(1), and Cauchy priors)"
    )
    if index >= 1 - _SLACK:
        raise ValueError(
            say
            + f"{problem}: its expectation is infinite or does not exist, and no bound is finite; "
            f"{cure}"
        )
    if index >= 0.5 - _SLACK:
        warnings.warn(
            say + f"{problem}: its variance is infinite, so that averages over draws settle slowly "
            f"and their standard errors say too little; {cure}",
            stacklevel=7,
        )


def pareto_k(values: np.ndarray) -> float:
    """Pareto k of the upper tail of `values`, from the largest min(S / 5, 3 sqrt(S)) of them."""
    values = np.sort(np.asarray(values, np.float64))
    count = int(np.ceil(min(0.2 * len(values), 3 * np.sqrt(len(values)))))
    tail = values[-count:] - values[-count - 1]
    if not np.all(np.isfinite(tail)):
        return np.inf
    tail = tail[tail > 0]
    return generalised_pareto_k(tail) if len(tail) >= 5 else -np.inf


def generalised_pareto_k(x: np.ndarray) -> float:
    """Shape of a generalised Pareto law fitted to rising x > 0 (Zhang and Stephens, 2009).

    With the prior of Vehtari et al. (2024): ten observations worth of k = 1/2.
    """
    n = len(x)
    size = 30 + int(np.sqrt(n))
    theta = 1 / x[-1] + (1 - np.sqrt(size / (np.arange(size) + 0.5))) / (
        3 * x[int(n / 4 + 0.5) - 1]
    )
    k = np.mean(np.log1p(-theta[:, None] * x[None, :]), axis=1)
    profile = n * (np.log(-theta / k) - k - 1)
    weights = 1 / np.sum(np.exp(np.minimum(profile[None, :] - profile[:, None], 700)), axis=1)
    best = np.sum(weights * theta) / np.sum(weights)
    fitted = np.mean(np.log1p(-best * x))
    return float((n * fitted + 10 * 0.5) / (n + 10))


def _near_index(model: ArmModel) -> float:
    """The larger Pareto k of both tails of draws from the prior, less two standard errors."""
    keys = jax.random.split(jax.random.key(2), _DRAWS)
    arms = np.arange(_DRAWS) % model.num_arms

    def one(key: Any, arm: Any) -> Any:
        return model.mean(model.sample_prior(key), arm if model.joint else None)

    means = np.asarray(jax.jit(jax.vmap(one), compiler_options=quick())(keys, arms))
    k = max(pareto_k(means), pareto_k(-means))
    return k - 2 * (1 + max(k, 0)) / np.sqrt(3 * np.sqrt(_DRAWS)) if np.isfinite(k) else k


def _far_index(model: ArmModel) -> tuple[float, str] | None:
    """(index, how it was found) far out in normal scores, or None where that cannot be computed."""
    from scipy.special import ndtr

    def one(uniforms: Any, arm: Any) -> Any:
        params = model.prior_from_uniforms(uniforms)
        assert params is not None
        return model.mean(params, arm if model.joint else None)

    dim = model.num_uniforms
    with jax.enable_x64(True):
        program = jax.jit(jax.vmap(one), compiler_options=quick())

        def means(z: np.ndarray, arms: np.ndarray) -> np.ndarray:
            found = []
            for start in range(0, len(z), _BATCH):
                part = np.pad(z[start : start + _BATCH], ((0, _BATCH), (0, 0)))[:_BATCH]
                at = np.pad(arms[start : start + _BATCH], (0, _BATCH))[:_BATCH]
                found.append(np.asarray(program(jnp.asarray(ndtr(part)), jnp.asarray(at))))
            return np.concatenate(found)[: len(z)]

        rng = np.random.default_rng(3)
        z, arms = rng.standard_normal((_POINTS, dim)), np.arange(_POINTS) % model.num_arms
        try:
            near = means(z, arms)
        except Exception:
            return None  # not every model can be run in double precision
        if not np.all(np.isfinite(near)):
            return None
        centre = np.median(near)
        order = np.argsort(near)
        indices = []
        for sign, worst in ((-1.0, order[:_STARTS]), (1.0, order[-_STARTS:])):
            if sign * (near[worst[-1 if sign > 0 else 0]] - centre) <= 0:
                continue
            axes = np.concatenate([np.eye(dim), -np.eye(dim)])
            starts = np.concatenate([z[worst], axes])
            owners = np.concatenate([arms[worst], rng.integers(model.num_arms, size=2 * dim)])

            def size(z: np.ndarray, arms: np.ndarray, sign: float = sign) -> np.ndarray:
                with np.errstate(divide="ignore", invalid="ignore"):
                    return np.log(np.maximum(sign * (means(z, arms) - centre), 0))

            indices.append(_growth(size, starts, owners))
        if any(index is None for index in indices):
            return None
    found = max((index for index in indices if index is not None), default=-np.inf)
    return found, f"one draw in {1 / ndtr(-_RADII[-1]):.0e}"


def _growth(size: Any, starts: np.ndarray, arms: np.ndarray) -> float | None:
    """The index k of a tail, 0 where it falls with the distance; None where sizes are no numbers.

    size: log of the distance of the mean from its centre, `[M]`. On each sphere the largest size is
    sought by going where its gradient points, which is where the maximum lies for a gradient that
    is parallel to z.
    """
    heights = []
    direction = starts / np.linalg.norm(starts, axis=1, keepdims=True)
    for radius in _RADII:
        found = size(radius * direction, arms)
        for _ in range(_TURNS if direction.shape[1] > 1 else 0):
            slope = _gradient(size, radius * direction, found, arms)
            length = np.linalg.norm(slope, axis=1, keepdims=True)
            usable = (length > 0) & np.isfinite(length)
            turned = np.where(usable, slope / np.where(usable, length, 1), direction)
            there = size(radius * turned, arms)
            direction = np.where((there > found)[:, None], turned, direction)
            found = np.where(there > found, there, found)
        if np.any(np.isnan(found)):
            return None
        heights.append(found.max())
    if not np.all(np.isfinite(heights)):
        return np.inf if heights[-1] == np.inf else 0.0
    half_squares = np.square(_RADII) / 2
    early, late = np.diff(heights) / np.diff(half_squares)
    middles = (np.array(_RADII[1:]) + np.array(_RADII[:-1])) / 2
    if late <= 0:
        return 0.0
    falling = np.log(max(early, 1e-9) / late) / np.log(middles[1] / middles[0])
    return 0.0 if falling > _FALLING else float(late)


def _gradient(size: Any, z: np.ndarray, here: np.ndarray, arms: np.ndarray) -> np.ndarray:
    """By differences: inverse CDFs found by bisection have no derivative in JAX."""
    count, dim = z.shape
    step = 1e-3
    moved = z[:, None, :] + step * np.eye(dim)[None]
    ahead = size(moved.reshape(-1, dim), np.repeat(arms, dim)).reshape(count, dim)
    with np.errstate(invalid="ignore"):
        return (ahead - here[:, None]) / step
