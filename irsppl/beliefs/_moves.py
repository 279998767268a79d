"""MCMC moves of a whole cloud on one posterior: cheap ones first, stronger ones while they help.

Every point is a chain of its own; only what proposals are tuned by comes from the cloud. First
come independent proposals fitted to the cloud, which decorrelate fully while they are accepted.
As long as points remember where they started, or the sub-clouds disagree, rounds of Hamiltonian
steps (for continuous latents) and single changes (for discrete ones) follow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from irsppl.beliefs._subclouds import num_parts, resample, standard_error
from irsppl.beliefs._types import ArmModel, Params

_INDEPENDENT_STEPS = 5
# Proposals are fitted to each combination of discrete latents while there are few, shrunk to the
# cloud's own fit by as much as this share of its points would weigh; and each is proposed with at
# least this probability, in all.
_MOST_COMBINATIONS = 16
_SHRINK = 0.01
_FLOOR = 0.1

# Rounds go on while points remember their start by more than this correlation, or the parts of the
# cloud disagree by more than so many times what as many independent points would.
_MEMORY = 0.4
_DISAGREEMENT = 3.0
_MOST_ROUNDS = 30
_LEAPFROGS = 8
_WANTED_ACCEPTANCE = 0.75
_STEPS = (1e-3, 1.5)  # in standard deviations of the cloud


class Unconstrained(NamedTuple):
    """Points in unconstrained space, all leaves with leading axis N."""

    z: Float[Array, "N d"]
    discrete: Params


class Rejuvenated(NamedTuple):
    params: Params  # leading axis N, equally weighted, in the order of parts
    acceptance: Float[Array, ""]  # of the last moves made
    memory: Float[Array, ""]  # largest correlation of where points are with where they started
    step: Float[Array, ""]  # of the Hamiltonian moves, tuned


def first_step(model: ArmModel) -> float:
    """Step size to start from, in standard deviations of the cloud."""
    return 0.9 * max(model.dim, 1) ** -0.25


def rejuvenate(
    model: ArmModel,
    params: Params,
    log_weights: Float[Array, " N"],
    part: Int[np.ndarray, " N"],
    log_likelihood: Callable[[Params], Array],
    mean_of: Callable[[Params], Float[Array, " K"]],
    step: Float[Array, ""],
    key: Array,
) -> Rejuvenated:
    """An equally weighted cloud for the posterior.

    params: leading axis N, in the order of their parts; log_likelihood: of all data so far at one
    point; mean_of: mean rewards at one point, whose error matters; step: as the last call tuned it.
    """
    count = log_weights.shape[0]
    resample_key, move_key, round_key = jax.random.split(key, 3)
    names = [name for name, site in model.latents.items() if site.discrete]

    def density(z: Array, discrete: Params) -> Array:
        point = model.constrain(z, discrete)
        value = model.log_prior_unconstrained(z, discrete) + log_likelihood(point)
        if names:
            value = jnp.where(model.checked_log_prior(point) > -jnp.inf, value, -jnp.inf)
        return jnp.where(jnp.isnan(value), -jnp.inf, value)

    densities = jax.vmap(density)
    weights = jnp.exp(log_weights)
    every = Unconstrained(
        jax.vmap(model.unconstrain)(params), {name: params[name] for name in names}
    )
    chosen = resample(resample_key, log_weights, part)
    start = jax.tree.map(lambda leaf: leaf[chosen], every)
    # Fitted to the weighted cloud before resampling, which has the more distinct points.
    fit = _fit(model, every, weights)
    cloud, acceptance = _independent(fit, start, densities, part, move_key)

    def features(cloud: Unconstrained) -> tuple[Array, Array]:
        means = jax.vmap(lambda z, d: mean_of(model.constrain(z, d)))(*cloud)
        discrete = _flat(cloud.discrete, means.dtype)
        return jnp.concatenate([cloud.z, *discrete, means], axis=1), means

    first, _ = features(start)

    def unsettled(cloud: Unconstrained) -> tuple[Array, Array]:
        """Whether more is needed, and the memory."""
        now, means = features(cloud)
        memory = _memory(first, now)
        even = jnp.full(count, 1 / count, means.dtype)
        error = standard_error(means, even, jnp.asarray(part), jnp.asarray(float(count)))
        limit = _DISAGREEMENT * jnp.std(means, axis=0) / math.sqrt(count)
        apart = jnp.any(error > limit) if num_parts(count) > 1 else jnp.asarray(False)
        return (memory > _MEMORY) | apart, memory

    def one_round(state: Any) -> Any:
        cloud, acceptance, step, _, _, done = state
        key = jax.random.fold_in(round_key, done)
        flip_key, walk_key = jax.random.split(key)
        if names:
            cloud, acceptance = _change_discrete(model, fit, cloud, densities, flip_key)
        if model.dim:
            cloud, acceptance = _hamiltonian(fit, cloud, density, step, walk_key)
            step = step * jnp.exp(acceptance - _WANTED_ACCEPTANCE)
            step = jnp.clip(step, *_STEPS).astype(state[2].dtype)
        return cloud, acceptance, step, *unsettled(cloud), done + 1

    begin = (cloud, acceptance, step, *unsettled(cloud), jnp.asarray(0, jnp.int32))
    end = jax.lax.while_loop(lambda s: s[3] & (s[5] < _MOST_ROUNDS), one_round, begin)
    cloud, acceptance, step, _, memory, _ = end
    return Rejuvenated(jax.vmap(model.constrain)(*cloud), acceptance, memory, step)


def _memory(before: Float[Array, "N F"], now: Float[Array, "N F"]) -> Float[Array, ""]:
    """The largest correlation over columns; a column that does not vary remembers nothing."""

    def centred(x: Array) -> Array:
        x = jnp.where(jnp.isfinite(x), x, 0)
        return x - jnp.mean(x, axis=0, keepdims=True)

    a, b = centred(before), centred(now)
    size = jnp.sqrt(jnp.sum(a**2, axis=0) * jnp.sum(b**2, axis=0))
    return jnp.max(jnp.where(size > 0, jnp.abs(jnp.sum(a * b, axis=0)) / size, 0), initial=0.0)


# ---- a Gaussian for each combination of the discrete latents


class Fit(NamedTuple):
    mean: Float[Array, "J d"]
    root: Float[Array, "J d d"]  # lower triangular
    log_share: Float[Array, " J"]
    combinations: Params | None  # leading axis J; None: proposals leave discrete latents alone
    whole_root: Float[Array, "d d"]  # of all points, for moves that do not ask which combination
    slopes: Float[Array, "E d"]  # of z on each element of the discrete latents


def _same(combinations: Params, discrete: Params) -> Array:
    """`[N, J]`: whether a point has a combination."""
    found: Any = True
    for name, values in combinations.items():
        mine = discrete[name].reshape(discrete[name].shape[0], 1, -1)
        theirs = jnp.asarray(values).astype(mine.dtype).reshape(1, len(values), -1)
        found = found & jnp.all(mine == theirs, axis=2)
    return found


def _fit(model: ArmModel, cloud: Unconstrained, weights: Float[Array, " N"]) -> Fit:
    count, dim = cloud.z.shape
    # A latent at the very end of its range lies at infinity in z.
    usable = jnp.all(jnp.isfinite(cloud.z), axis=1)
    z = jnp.where(usable[:, None], cloud.z, 0)
    weights = jnp.where(usable, weights, 0).astype(z.dtype)
    weights = weights / jnp.maximum(jnp.sum(weights), jnp.finfo(z.dtype).tiny)
    mean = weights @ z
    combinations = model.combinations(_MOST_COMBINATIONS) if model.has_discrete else None
    if combinations is None:
        member = jnp.ones((count, 1), z.dtype)
    else:
        member = _same(combinations, cloud.discrete).astype(z.dtype)
    mass = weights @ member  # [J]
    jobs = member.shape[1]
    shrink = _SHRINK if jobs > 1 else 0.0

    def root_of(spread: Array, weights: Array, extra: Array) -> Array:
        cov = (weights[:, None] * spread).T @ spread + extra
        scale = jnp.sqrt(jnp.diagonal(cov)) + 1e-12
        correlation = cov / scale[:, None] / scale[None, :] + 1e-4 * jnp.eye(dim)
        return scale[:, None] * jnp.linalg.cholesky(correlation)

    nothing = jnp.zeros((dim, dim), z.dtype)
    whole = root_of(z - mean[None, :], weights, nothing)
    means = ((weights[:, None] * member).T @ z + shrink * mean[None, :]) / (mass + shrink)[:, None]

    def own(j: Array) -> Array:
        total = mass[j] + shrink
        return root_of(
            z - means[j][None, :], weights * member[:, j] / total, shrink / total * whole @ whole.T
        )

    roots = jax.vmap(own)(jnp.arange(jobs)) if jobs > 1 else whole[None]
    share = (1 - _FLOOR) * mass + _FLOOR / jobs if jobs > 1 else jnp.ones_like(mass)
    slopes = _slopes(cloud, z - mean[None, :], weights)
    return Fit(means, 1.1 * roots, jnp.log(share), combinations, whole, slopes)


def _flat(discrete: Params, dtype: Any) -> list[Float[Array, "N e"]]:
    return [leaf.reshape(leaf.shape[0], -1).astype(dtype) for leaf in discrete.values()]


def _slopes(
    cloud: Unconstrained, spread: Float[Array, "N d"], weights: Array
) -> Float[Array, "E d"]:
    """Regression of the continuous latents on the discrete ones, over the cloud."""
    if not cloud.discrete:
        return jnp.zeros((0, spread.shape[1]), spread.dtype)
    columns = jnp.concatenate(_flat(cloud.discrete, spread.dtype), axis=1)
    columns = columns - (weights @ columns)[None, :]
    gram = (weights[:, None] * columns).T @ columns
    ridge = 1e-4 * jnp.trace(gram) / gram.shape[0] + 1e-6
    by = (weights[:, None] * columns).T @ spread
    return jnp.linalg.solve(gram + ridge * jnp.eye(gram.shape[0]), by)


def _independent(
    fit: Fit, start: Unconstrained, densities: Callable, part: Int[np.ndarray, " N"], key: Array
) -> tuple[Unconstrained, Float[Array, ""]]:
    """Proposals do not depend on where a point is: those of all steps are weighed at once."""
    count, dim = start.z.shape
    steps, jobs = _INDEPENDENT_STEPS, fit.mean.shape[0]
    draw_key, accept_key = jax.random.split(key)
    uniforms = even_uniforms(draw_key, steps, part, dim + 1).astype(start.z.dtype)
    edges = jnp.cumsum(jnp.exp(fit.log_share))
    which = jnp.minimum(jnp.searchsorted(edges, uniforms[..., 0], side="right"), jobs - 1)
    noise = jax.scipy.special.ndtri(uniforms[..., 1:])
    if jobs == 1:
        z = fit.mean[0][None, None, :] + noise @ fit.root[0].T
    else:
        z = fit.mean[which] + jnp.einsum("snij,snj->sni", fit.root[which], noise)
    if fit.combinations is None:
        discrete = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf[None], (steps, *leaf.shape)), start.discrete
        )
    else:
        discrete = {
            name: jnp.asarray(fit.combinations[name])[which].astype(leaf.dtype)
            for name, leaf in start.discrete.items()
        }
    offers = Unconstrained(z, discrete)

    # Of the small roots alone: with all points on the right-hand side LAPACK would use threads of
    # its own, which go on turning for a while and keep a core from those that play.
    unit = jnp.eye(dim, dtype=fit.root.dtype)
    back = jax.vmap(lambda r: jax.scipy.linalg.solve_triangular(r, unit, lower=True))(fit.root)

    def proposal_density(cloud: Unconstrained) -> Array:
        white = jax.vmap(lambda mean, back: (cloud.z - mean[None, :]) @ back.T)(fit.mean, back)
        widths = jnp.sum(jnp.log(jnp.diagonal(fit.root, axis1=1, axis2=2)), axis=1)
        logs = (fit.log_share - widths)[:, None] - 0.5 * jnp.sum(white**2, axis=2)
        if fit.combinations is None:
            return logs[0]
        member = _same(fit.combinations, cloud.discrete)
        return jnp.max(jnp.where(member.T, logs, -jnp.inf), axis=0)

    def score(cloud: Unconstrained) -> Array:
        """Posterior over proposal density, in logs: what independent moves compare."""
        ratio = densities(*cloud) - proposal_density(cloud)
        return jnp.where(jnp.isnan(ratio), -jnp.inf, ratio)

    everything = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), start, offers)
    scores = jax.vmap(score)(everything)
    dice = jnp.log(jax.random.uniform(accept_key, (steps, count), start.z.dtype))

    def step(
        state: tuple[Unconstrained, Array], offer: tuple[Unconstrained, Array, Array]
    ) -> tuple[Any, Array]:
        cloud, at = state
        new, there, dice = offer
        gain = _gain(there, at)
        state = _choose(dice < gain, new, cloud), jnp.where(dice < gain, there, at)
        return state, jnp.mean(jnp.exp(jnp.minimum(gain, 0)))

    (moved, _), rates = jax.lax.scan(step, (start, scores[0]), (offers, scores[1:], dice))
    return moved, jnp.mean(rates)


def _gain(there: Array, here: Array) -> Array:
    """Log of a Metropolis ratio: never towards where nothing is possible, always away from it."""
    return jnp.where(there == -jnp.inf, -jnp.inf, there - here)


def _choose(moves: Array, new: Unconstrained, old: Unconstrained) -> Unconstrained:
    def pick(a: Array, b: Array) -> Array:
        return jnp.where(moves.reshape(moves.shape + (1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(pick, new, old)


# ---- rounds


def _hamiltonian(
    fit: Fit, cloud: Unconstrained, density: Callable, step: Array, key: Array
) -> tuple[Unconstrained, Float[Array, ""]]:
    """One trajectory per point, in coordinates in which the cloud is round.

    Steps differ between points: the least of a cloud's scales may be far below its overall one.
    """
    import blackjax

    count = cloud.z.shape[0]
    size_key, walk_key = jax.random.split(key)
    sizes = step * jax.random.uniform(size_key, (count,), step.dtype, 0.2, 1.2)
    unit = jnp.ones(cloud.z.shape[1], cloud.z.dtype)

    def one(z: Array, discrete: Params, size: Array, key: Array) -> tuple[Array, Array]:
        kernel = blackjax.hmc(
            lambda white: density(z + fit.whole_root @ white, discrete),
            step_size=size,
            inverse_mass_matrix=unit,
            num_integration_steps=_LEAPFROGS,
        )
        state, info = kernel.step(key, kernel.init(jnp.zeros_like(z)))
        rate = info.acceptance_rate
        return z + fit.whole_root @ state.position, jnp.where(jnp.isnan(rate), 0, rate)

    z, rates = jax.vmap(one)(cloud.z, cloud.discrete, sizes, jax.random.split(walk_key, count))
    return Unconstrained(z.astype(cloud.z.dtype), cloud.discrete), jnp.mean(rates)


def _change_discrete(
    model: ArmModel, fit: Fit, cloud: Unconstrained, densities: Callable, key: Array
) -> tuple[Unconstrained, Float[Array, ""]]:
    """A Metropolis step for every element of every discrete latent.

    Every second one takes the continuous latents along, by as much as they differ over the cloud
    between the two values: where data have tied both, neither could move alone.
    """
    count, dtype = cloud.z.shape[0], cloud.z.dtype
    at = densities(*cloud)
    rates, first = [], 0
    for number, (name, leaf) in enumerate(cloud.discrete.items()):
        values = model.latents[name].values
        size = int(np.prod(leaf.shape[1:], dtype=int))
        keys = jax.random.split(jax.random.fold_in(key, number), size)

        def change(
            state: tuple[Unconstrained, Array],
            this: tuple[Array, Array, Array],
            name: str = name,
            values: Any = values,
        ) -> tuple[Any, Array]:
            cloud, at = state
            element, key, slope = this
            value_key, along_key, dice_key = jax.random.split(key, 3)
            flat = cloud.discrete[name].reshape(count, -1)
            old = flat[:, element]
            new = _other_value(value_key, old, values)
            flat = flat.at[:, element].set(new)
            changed = {**cloud.discrete, name: flat.reshape(cloud.discrete[name].shape)}
            # A shift and its reverse are equally likely, and neither stretches: plain Metropolis.
            along = jax.random.bernoulli(along_key, shape=(count,))
            step = jnp.where(along, new.astype(dtype) - old.astype(dtype), 0)
            offer = Unconstrained(cloud.z + step[:, None] * slope[None, :], changed)
            there = densities(*offer)
            gain = _gain(there, at)
            moves = jnp.log(jax.random.uniform(dice_key, (count,), at.dtype)) < gain
            state = _choose(moves, offer, cloud), jnp.where(moves, there, at)
            return state, jnp.mean(jnp.exp(jnp.minimum(gain, 0)))

        each = (jnp.arange(size), keys, fit.slopes[first : first + size])
        (cloud, at), rate = jax.lax.scan(change, (cloud, at), each)
        rates.append(jnp.mean(rate))
        first += size
    return cloud, jnp.mean(jnp.stack(rates))


def _other_value(key: Array, now: Array, values: np.ndarray | None) -> Array:
    """Another value, as likely from here as from there back."""
    if values is not None and len(values) > 1:
        known = jnp.asarray(values).astype(now.dtype)
        place = jnp.argmin(jnp.abs(now[:, None] - known[None, :]), axis=1)
        further = jax.random.randint(key, now.shape, 1, len(values))
        return known[(place + further) % len(values)]
    side_key, size_key = jax.random.split(key)
    size = jnp.floor(jnp.exp2(jax.random.uniform(size_key, now.shape, maxval=4.0)))  # 1 to 15
    sign = jnp.where(jax.random.bernoulli(side_key, shape=now.shape), 1.0, -1.0)
    return (now + (sign * size).astype(now.dtype)).astype(now.dtype)


# ---- evenly spread numbers


def even_uniforms(
    key: Array, steps: int, part: Int[np.ndarray, " N"], dim: int
) -> Float[Array, "steps N d"]:
    """Uniform draws that are evenly spread over the points of each part, in each step.

    Each alone is uniform, which is all that a point's own chain needs; together they vary less
    than independent ones. Randomly shifted lattices, one for each part, dealt to its points at
    random; parts share nothing.
    """
    shift_key, deal_key = jax.random.split(key)
    count, parts = len(part), int(part.max()) + 1
    shift = jax.random.uniform(shift_key, (steps, parts, dim))[:, part]
    sizes = np.bincount(part)
    start = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    place = np.arange(count) - start[part]
    lattice = jnp.asarray(kronecker(int(sizes.max()), dim)[place], shift.dtype)
    even = (lattice[None] + shift) % 1
    order = jnp.argsort(jax.random.uniform(deal_key, (steps, count)) + jnp.asarray(part)[None], 1)
    even = jax.vmap(lambda table, order: table[order])(even, order)
    tiny = float(jnp.finfo(even.dtype).eps)
    return jnp.clip(even, tiny, 1 - tiny)


def kronecker(count: int, dim: int) -> np.ndarray:
    """`[count, dim]` points of the unit cube, evenly spread.

    Steps are powers of the inverse of the root of x^(d+1) = x + 1 (the plastic number's kin).
    """
    root = 1.5
    for _ in range(60):
        root = (1 + root) ** (1 / (dim + 1))
    steps = np.array([math.pow(root, -(i + 1)) for i in range(dim)])
    return np.outer(np.arange(count), steps) % 1.0
