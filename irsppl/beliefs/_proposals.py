"""Independent proposals: a Gaussian for each combination of discrete latents, and the prior.

Both are fitted to, or held against, a cloud: the Gaussians are where its points are, the prior is
wherever points could be. Without the second a region that the cloud has left, or never saw, would
be reached too late and at the wrong place.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from irsppl.beliefs._even import even_uniforms
from irsppl.beliefs._types import ArmModel, Params

_STEPS = 5
# Proposals are fitted to each combination of discrete latents while there are few, shrunk to the
# cloud's own fit as if so many points were all over it; and each is proposed with at least this
# probability, in all.
MOST_COMBINATIONS = 16
_SHRINK = 0.5
_FLOOR = 0.1
# One in so many proposals comes from the prior (given the discrete latents).
_PRIOR = 10
# And with this probability it is so many times as wide: a Gaussian fitted to a cloud hardly ever
# reaches a second place that few of its points have found, after one outlier say.
_FAR_SHARE, _FAR = 0.2, 4.0
_PILOTS = 32  # draws from the prior that place a Gaussian where a combination has no point


class Unconstrained(NamedTuple):
    """Points in unconstrained space, all leaves with leading axis N."""

    z: Float[Array, "N d"]
    discrete: Params


@dataclasses.dataclass(frozen=True, eq=False)
class Task:
    """What a cloud is moved on."""

    model: ArmModel
    part: Int[np.ndarray, " N"]
    density: Callable[[Array, Params], Array]  # log of the posterior at one point
    combinations: Params | None  # leading axis J; None: proposals leave discrete latents alone

    @property
    def num_combinations(self) -> int:
        return 1 if self.combinations is None else len(next(iter(self.combinations.values())))

    def member(self, cloud: Unconstrained) -> Bool[Array, "N J"]:
        """Whether a point has a combination."""
        discrete = cloud.discrete
        if self.combinations is None:
            return jnp.ones((cloud.z.shape[0], 1), bool)
        found: Any = True
        for name, values in self.combinations.items():
            mine = discrete[name].reshape(discrete[name].shape[0], 1, -1)
            theirs = jnp.asarray(values).astype(mine.dtype).reshape(1, len(values), -1)
            found = found & jnp.all(mine == theirs, axis=2)
        return found

    def pilots(self, key: Array) -> Float[Array, "J n d"]:
        """Draws of z from the prior beside each combination."""
        if self.combinations is None:
            return jnp.zeros((1, 0, self.model.dim))
        keys = jax.random.split(key, (self.num_combinations, _PILOTS))
        beside = jax.vmap(self.model.sample_beside, in_axes=(None, 0))
        return jax.vmap(beside)(self.combinations, keys)

    def which(self, cloud: Unconstrained) -> Int[Array, " N"]:
        """The combination of each point."""
        return jnp.argmax(self.member(cloud), axis=1)


class Fit(NamedTuple):
    mean: Float[Array, "J d"]
    root: Float[Array, "J d d"]  # lower triangular
    log_share: Float[Array, " J"]
    whole_root: Float[Array, "d d"]  # of all points, for moves that do not ask which combination
    slopes: Float[Array, "E d"]  # of z on each element of the discrete latents


def fit_to(
    task: Task, cloud: Unconstrained, weights: Float[Array, "2 N"], pilots: Float[Array, "J n d"]
) -> Fit:
    """weights: for fits to combinations, and for the fit to all points, in which rare combinations
    must count for no more than they are; pilots: where a combination without points is placed."""
    dim = cloud.z.shape[1]
    # A latent at the very end of its range lies at infinity in z.
    usable = jnp.all(jnp.isfinite(cloud.z), axis=1)
    z = jnp.where(usable[:, None], cloud.z, 0)
    every = jnp.where(usable[None, :], weights, 0).astype(z.dtype)
    totals = jnp.sum(every, axis=1, keepdims=True)
    weights, plain = every / jnp.maximum(totals, jnp.finfo(z.dtype).tiny)
    mean = plain @ z
    jobs = task.num_combinations

    def root_of(spread: Array, weights: Array, extra: Array) -> Array:
        cov = (weights[:, None] * spread).T @ spread + extra
        scale = jnp.sqrt(jnp.diagonal(cov)) + 1e-12
        correlation = cov / scale[:, None] / scale[None, :] + 1e-4 * jnp.eye(dim)
        return scale[:, None] * jnp.linalg.cholesky(correlation)

    whole = root_of(z - mean[None, :], plain, jnp.zeros((dim, dim), z.dtype))
    slopes = _slopes(cloud, z - mean[None, :], weights)
    if jobs == 1:
        return Fit(mean[None], 1.1 * whole[None], jnp.zeros(1, z.dtype), whole, slopes)
    member = task.member(cloud).astype(z.dtype)
    mass = weights @ member  # [J]
    empty = mass <= 0
    shrink = _SHRINK / len(task.part)
    pilots = jnp.where(jnp.isfinite(pilots), pilots, 0).astype(z.dtype)
    prior_sd = jnp.std(pilots, axis=1)
    towards = jnp.where(empty[:, None], jnp.mean(pilots, axis=1), mean[None, :])
    means = ((weights[:, None] * member).T @ z + shrink * towards) / (mass + shrink)[:, None]

    def own(j: Array) -> Array:
        total = mass[j] + shrink
        wide = jnp.where(empty[j], jnp.diag(prior_sd[j] ** 2), whole @ whole.T)
        return root_of(z - means[j][None, :], weights * member[:, j] / total, shrink / total * wide)

    roots = jax.vmap(own)(jnp.arange(jobs))
    share = (1 - _FLOOR) * mass + _FLOOR / jobs
    return Fit(means, 1.1 * roots, jnp.log(share), whole, slopes)


def flat(discrete: Params, dtype: Any) -> list[Float[Array, "N e"]]:
    return [leaf.reshape(leaf.shape[0], -1).astype(dtype) for leaf in discrete.values()]


def _slopes(
    cloud: Unconstrained, spread: Float[Array, "N d"], weights: Array
) -> Float[Array, "E d"]:
    """Regression of the continuous latents on the discrete ones, over the cloud."""
    if not cloud.discrete:
        return jnp.zeros((0, spread.shape[1]), spread.dtype)
    columns = jnp.concatenate(flat(cloud.discrete, spread.dtype), axis=1)
    columns = columns - (weights @ columns)[None, :]
    gram = (weights[:, None] * columns).T @ columns
    ridge = 1e-4 * jnp.trace(gram) / gram.shape[0] + 1e-6
    by = (weights[:, None] * columns).T @ spread
    return jnp.linalg.solve(gram + ridge * jnp.eye(gram.shape[0]), by)


# ---- proposals, and steps with them


class Offers(NamedTuple):
    """Proposals of all steps, which do not depend on where a point is: all are weighed at once.

    Scores are logs of posterior over proposal density: what independent steps compare.
    """

    points: Unconstrained  # leading axes [steps, N]
    which: Int[Array, "steps N"]  # combinations
    scores: Float[Array, "steps N"]
    scores_within: Float[Array, "steps N"]  # with the density of a proposal given its combination
    here: Float[Array, " N"]  # scores of the points that are to move


def offer(
    task: Task,
    fit: Fit,
    start: Unconstrained,
    bound: tuple[Bool[np.ndarray, " N"], Int[np.ndarray, " N"]],
    key: Array,
) -> Offers:
    """bound: (places whose proposals have a given combination, and which)."""
    count, dim = start.z.shape
    steps, jobs = _STEPS, fit.mean.shape[0]
    draw_key, prior_key, far_key = jax.random.split(key, 3)
    uniforms = even_uniforms(draw_key, steps, task.part, dim + 1).astype(start.z.dtype)
    edges = jnp.cumsum(jnp.exp(fit.log_share))
    which = jnp.minimum(jnp.searchsorted(edges, uniforms[..., 0], side="right"), jobs - 1)
    which = jnp.where(bound[0][None, :], bound[1][None, :], which).astype(jnp.int32)
    noise = jax.scipy.special.ndtri(uniforms[..., 1:])
    far = jax.random.uniform(far_key, (steps, count, 1), noise.dtype) < _FAR_SHARE
    noise = jnp.where(far, _FAR * noise, noise)
    if jobs == 1:
        z = fit.mean[0][None, None, :] + noise @ fit.root[0].T
    else:
        z = fit.mean[which] + jnp.einsum("snij,snj->sni", fit.root[which], noise)
    if task.combinations is None:
        discrete = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf[None], (steps, *leaf.shape)), start.discrete
        )
    else:
        discrete = {
            name: jnp.asarray(task.combinations[name])[which].astype(leaf.dtype)
            for name, leaf in start.discrete.items()
        }
    few = count // _PRIOR if dim else 0
    z = _some_from_prior(task, z, discrete, few, prior_key)
    offers = Unconstrained(z, discrete)

    # Of the small roots alone: with all points on the right-hand side LAPACK would use threads of
    # its own, which go on turning for a while and keep a core from those that play.
    unit = jnp.eye(dim, dtype=fit.root.dtype)
    back = jax.vmap(lambda r: jax.scipy.linalg.solve_triangular(r, unit, lower=True))(fit.root)
    widths = jnp.sum(jnp.log(jnp.diagonal(fit.root, axis1=1, axis2=2)), axis=1)
    widths = widths + 0.5 * dim * math.log(2 * math.pi)

    def proposal_density(cloud: Unconstrained) -> Array:
        white = jax.vmap(lambda mean, back: (cloud.z - mean[None, :]) @ back.T)(fit.mean, back)
        square = 0.5 * jnp.sum(white**2, axis=2)
        far = math.log(_FAR_SHARE) - dim * math.log(_FAR) - square / _FAR**2
        logs = jnp.logaddexp(math.log1p(-_FAR_SHARE) - square, far) - widths[:, None]
        member = task.member(cloud).T
        share = jnp.max(jnp.where(member, fit.log_share[:, None], -jnp.inf), axis=0)
        logs = jnp.max(jnp.where(member, logs, -jnp.inf), axis=0)
        if few:
            prior = jax.vmap(lambda z, d: task.model.log_prior_parts(z, d)[0])(*cloud)
            prior = jnp.where(jnp.isnan(prior), -jnp.inf, prior).astype(logs.dtype)
            part = few / count
            logs = jnp.logaddexp(math.log(1 - part) + logs, math.log(part) + prior)
        return share + logs

    def score(cloud: Unconstrained) -> Array:
        ratio = jax.vmap(task.density)(*cloud) - proposal_density(cloud)
        return jnp.where(jnp.isnan(ratio), -jnp.inf, ratio)

    everything = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), start, offers)
    scores = jax.vmap(score)(everything)
    within = scores[1:] + fit.log_share[which]
    return Offers(offers, which, scores[1:], within, scores[0])


def _some_from_prior(
    task: Task, z: Float[Array, "steps N d"], discrete: Params, few: int, key: Array
) -> Float[Array, "steps N d"]:
    """With `few` proposals of each step, dealt at random, replaced by draws from the prior beside
    the discrete latents proposed: each point has each of its steps from there with probability
    few / N."""
    if not few:
        return z
    deal_key, draw_key = jax.random.split(key)
    steps, count, dim = z.shape
    place = jnp.argsort(jax.random.uniform(deal_key, (steps, count)), axis=1)[:, :few]
    rows = (jnp.arange(steps)[:, None] * count + place).reshape(-1)
    beside = {n: x.reshape(steps * count, *x.shape[2:])[rows] for n, x in discrete.items()}
    drawn = jax.vmap(task.model.sample_beside)(beside, jax.random.split(draw_key, len(rows)))
    return z.reshape(-1, dim).at[rows].set(drawn.astype(z.dtype)).reshape(z.shape)


def walk(
    offers: Offers, start: Unconstrained, key: Array
) -> tuple[Unconstrained, Float[Array, ""]]:
    """(Points after Metropolis-Hastings steps to these offers, rate of acceptance)."""
    dice = jnp.log(jax.random.uniform(key, offers.scores.shape, start.z.dtype))

    def step(
        state: tuple[Unconstrained, Array], offer: tuple[Unconstrained, Array, Array]
    ) -> tuple[Any, Array]:
        cloud, at = state
        new, there, dice = offer
        rise = gain(there, at)
        state = choose(dice < rise, new, cloud), jnp.where(dice < rise, there, at)
        return state, jnp.mean(jnp.exp(jnp.minimum(rise, 0)))

    (moved, _), rates = jax.lax.scan(
        step, (start, offers.here), (offers.points, offers.scores, dice)
    )
    return moved, jnp.mean(rates)


def gain(there: Array, here: Array) -> Array:
    """Log of a Metropolis ratio: never towards where nothing is possible, always away from it."""
    return jnp.where(there == -jnp.inf, -jnp.inf, there - here)


def choose(moves: Array, new: Unconstrained, old: Unconstrained) -> Unconstrained:
    def pick(a: Array, b: Array) -> Array:
        return jnp.where(moves.reshape(moves.shape + (1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(pick, new, old)
