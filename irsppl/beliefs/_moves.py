"""MCMC moves of a whole cloud on one posterior: cheap ones first, stronger ones while they help.

Every point is a chain of its own; only what proposals are tuned by comes from the cloud. First
come independent proposals fitted to the cloud, some of them from the prior, which decorrelate fully
while they are accepted. As long as points remember where they started, the sub-clouds disagree, or
means drift, rounds follow: independent proposals fitted anew, Hamiltonian steps (for continuous
latents) and single changes (for discrete ones).

Where discrete latents have few combinations, some points are bound to each (`_sentinels`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from irsppl.beliefs._drift import Found, drifted, found, gap, part_means
from irsppl.beliefs._proposals import (
    MOST_COMBINATIONS,
    Fit,
    Task,
    Unconstrained,
    choose,
    fit_to,
    flat,
    gain,
    offer,
    walk,
)
from irsppl.beliefs._sentinels import Sentinels, log_weights_of, manned, sentinels
from irsppl.beliefs._subclouds import num_parts, resample, standard_error
from irsppl.beliefs._types import ArmModel, Params

# Combinations of discrete latents have this share in fits whatever their probabilities, in all.
_RARE = 0.1

# Rounds go on while points remember their start by more than this correlation, or the parts of the
# cloud disagree by more than so many times what as many independent points would.
_MEMORY = 0.4
_DISAGREEMENT = 3.0
_MOST_ROUNDS = 30
# Independent proposals are made in a round if the last ones were accepted at this rate.
_WORTH_PROPOSING = 0.02
_LEAPFROGS = 8
_WANTED_ACCEPTANCE = 0.75
_STEPS = (1e-3, 1.5)  # in standard deviations of the cloud


class Rejuvenated(NamedTuple):
    params: Params  # leading axis N, in the order of parts
    log_weights: Float[Array, " N"]  # normalised
    acceptance: Float[Array, ""]  # of the last moves made
    memory: Float[Array, ""]  # largest correlation of where points are with where they started
    drift: Float[Array, " K"]  # of means, where they have not come to rest; zero elsewhere
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
    """A cloud for the posterior, its weights even but for those of rare combinations.

    params: leading axis N, in the order of their parts; log_likelihood: of all data so far at one
    point; mean_of: mean rewards at one point, whose error matters; step: as the last call tuned it.
    """
    count = log_weights.shape[0]
    resample_key, pilot_key, post_key, round_key = jax.random.split(key, 4)
    names = [name for name, site in model.latents.items() if site.discrete]

    def density(z: Array, discrete: Params) -> Array:
        point = model.constrain(z, discrete)
        value = model.log_prior_unconstrained(z, discrete) + log_likelihood(point)
        if names:
            value = jnp.where(model.checked_log_prior(point) > -jnp.inf, value, -jnp.inf)
        return jnp.where(jnp.isnan(value), -jnp.inf, value)

    task = Task(model, part, density, model.combinations(MOST_COMBINATIONS) if names else None)
    every = Unconstrained(
        jax.vmap(model.unconstrain)(params), {name: params[name] for name in names}
    )
    pilots = task.pilots(pilot_key)
    posts = sentinels(part, task.num_combinations)
    bound = ~posts.free, posts.own
    chosen = resample(resample_key, log_weights, part, posts.free)
    start = manned(task, posts, chosen, every, log_weights, pilots, post_key)
    watch = _Watch(task, posts, mean_of, start)
    ours = np.stack([np.ones(count), posts.free])

    def densities(z: Array, discrete: Params) -> Array:
        """Of what each point follows."""
        values = jax.vmap(density)(z, discrete)
        return posts.bound_scores(values, task.which(Unconstrained(z, discrete)))

    def independent(state: _State, key: Array) -> _State:
        offer_key, walk_key, found_key = jax.random.split(key, 3)
        fit = fit_to(task, state.near, state.near_weights, pilots)
        offers = offer(task, fit, state.cloud, bound, offer_key)
        cloud, rate = walk(offers, state.cloud, walk_key)
        sample = found(offers, task.num_combinations, found_key)
        return state._replace(cloud=cloud, fit=fit, sample=sample, rate=rate, acceptance=rate)

    def others(state: _State, key: Array) -> _State:
        cloud, acceptance, step = state.cloud, state.acceptance, state.step
        flip_key, walk_key = jax.random.split(key)
        if names:
            cloud, acceptance = _change_discrete(model, state.fit, cloud, densities, flip_key)
        if model.dim:
            cloud, acceptance = _hamiltonian(state.fit, cloud, density, step, walk_key)
            step = step * jnp.exp(acceptance - _WANTED_ACCEPTANCE)
            step = jnp.clip(step, *_STEPS).astype(state.step.dtype)
        return state._replace(cloud=cloud, acceptance=acceptance, step=step)

    def one_round(state: _State) -> _State:
        """The first is of independent proposals alone. They are left out of later ones where hardly
        any is accepted and nothing drifts."""
        independent_key, others_key = jax.random.split(jax.random.fold_in(round_key, state.done))
        useful = (state.rate > _WORTH_PROPOSING) | jnp.any(state.drift > 0)
        nothing = state._replace(sample=state.sample._replace(ess=jnp.zeros_like(state.sample.ess)))
        state = jax.lax.cond(
            useful, lambda s: independent(s, independent_key), lambda _: nothing, state
        )
        state = jax.lax.cond(state.done > 0, lambda s: others(s, others_key), lambda s: s, state)
        state = watch.judged(state)
        # Later proposals are fitted to the cloud and, half and half, to what earlier ones found.
        near = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), state.cloud, state.sample.points)
        theirs = jnp.full((2, count), state.sample.trusted, near.z.dtype)
        weights = jnp.concatenate([jnp.asarray(ours, near.z.dtype), theirs], axis=1)
        return state._replace(near=near, near_weights=weights, done=state.done + 1)

    # The first are fitted to the weighted cloud before resampling, which has more distinct points.
    one, none = jnp.ones((), every.z.dtype), jnp.zeros((), every.z.dtype)
    weights = jnp.stack([_fitting_weights(task, every, log_weights), jnp.exp(log_weights)])
    weights = weights.astype(every.z.dtype)
    begin = _State(
        start,
        one,
        step,
        jax.tree.map(
            lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
            jax.eval_shape(functools.partial(fit_to, task), every, weights, pilots),
        ),
        jax.tree.map(lambda a, b: jnp.concatenate([a, b]), every, start),
        jnp.concatenate([weights, jnp.zeros_like(weights)], axis=1),
        Found(start, none, jnp.zeros(task.num_combinations, every.z.dtype)),
        one,
        *watch.first,
        jnp.asarray(True),
        none,
        jnp.zeros_like(watch.centre),
        jnp.asarray(0, jnp.int32),
    )
    end = jax.lax.while_loop(lambda s: s.going & (s.done <= _MOST_ROUNDS), one_round, begin)
    return Rejuvenated(
        jax.vmap(model.constrain)(*end.cloud),
        log_weights_of(posts, task.which(end.cloud), end.sample.log_shares),
        end.acceptance,
        end.memory,
        end.drift,
        end.step,
    )


class _State(NamedTuple):
    """Between rounds."""

    cloud: Unconstrained
    acceptance: Float[Array, ""]  # of the last moves of any kind
    step: Float[Array, ""]
    fit: Fit
    near: Unconstrained  # [2 N] points that the next proposals are fitted to, with weights
    near_weights: Float[Array, "2 2N"]  # as `fit_to` wants them
    sample: Found  # what the last independent proposals found
    rate: Float[Array, ""]  # at which the last independent proposals were accepted
    before: Float[Array, "P F"]  # means by sub-cloud, a round ago
    mean: Float[Array, " K"]  # mean rewards then
    going: Bool[Array, ""]
    memory: Float[Array, ""]
    drift: Float[Array, " K"]
    done: Int[Array, ""]  # rounds, the first of independent proposals included


class _Watch:
    """Decides whether a cloud has settled."""

    def __init__(
        self,
        task: Task,
        posts: Sentinels,
        mean_of: Callable,
        start: Unconstrained,
    ):
        self.task, self.posts, self.mean_of = task, posts, mean_of
        # Sentinels may not go where others do: only points that may can forget and drift.
        self.free = np.flatnonzero(posts.free)
        means = self.means(start)
        self.centre = jnp.mean(means[self.free], axis=0)
        self.features = self.told(start, means)
        self.first = self.by_part(start, means), self.centre

    def means(self, cloud: Unconstrained) -> Float[Array, "N K"]:
        return jax.vmap(lambda z, d: self.mean_of(self.task.model.constrain(z, d)))(*cloud)

    def weights(self, cloud: Unconstrained, log_shares: Array) -> Float[Array, " N"]:
        return jnp.exp(log_weights_of(self.posts, self.task.which(cloud), log_shares))

    def told(self, cloud: Unconstrained, means: Array) -> Float[Array, "N F"]:
        """All that points could remember."""
        every = [cloud.z, *flat(cloud.discrete, means.dtype), means]
        return jnp.concatenate(every, axis=1)[self.free]

    def by_part(self, cloud: Unconstrained, means: Array) -> Float[Array, "P F"]:
        """Means over each sub-cloud of what must not drift: mean rewards and combinations."""
        columns = means - self.centre[None, :]
        if self.task.num_combinations > 1:
            member = self.task.member(cloud).astype(means.dtype)
            columns = jnp.concatenate([columns, member], axis=1)
        return part_means(columns[self.free], self.task.part[self.free])

    def judged(self, state: _State) -> _State:
        part = self.task.part
        means = self.means(state.cloud)
        weights = self.weights(state.cloud, state.sample.log_shares).astype(means.dtype)
        memory = _memory(self.features, self.told(state.cloud, means))
        size = 1 / jnp.sum(weights**2)
        error = standard_error(means, weights, jnp.asarray(part), size)
        mean = weights @ means
        sd = jnp.sqrt(weights @ (means - mean[None, :]) ** 2)
        apart = jnp.any(error > _DISAGREEMENT * sd / jnp.sqrt(size))
        apart = apart if num_parts(len(part)) > 1 else jnp.asarray(False)
        now = self.by_part(state.cloud, means)
        beyond = gap(means, weights, self.means(state.sample.points), state.sample.ess, part)
        lately = jnp.where(drifted(state.before, now), jnp.abs(mean - state.mean), 0)
        drift = jnp.maximum(beyond, lately)
        # Points that one jump has made forget, and that no further move takes along, have hardly
        # arrived. (Discrete ones may be where there is nothing else.)
        stuck = (state.acceptance < _WORTH_PROPOSING) & (self.task.model.dim > 0)
        drift = jnp.where(stuck, jnp.maximum(drift, sd), drift)
        going = (memory > _MEMORY) | apart | jnp.any(drift > 0)
        return state._replace(before=now, mean=mean, going=going, memory=memory, drift=drift)


def _memory(before: Float[Array, "N F"], now: Float[Array, "N F"]) -> Float[Array, ""]:
    """The largest correlation over columns; a column that does not vary remembers nothing."""

    def centred(x: Array) -> Array:
        x = jnp.where(jnp.isfinite(x), x, 0)
        return x - jnp.mean(x, axis=0, keepdims=True)

    a, b = centred(before), centred(now)
    size = jnp.sqrt(jnp.sum(a**2, axis=0) * jnp.sum(b**2, axis=0))
    return jnp.max(jnp.where(size > 0, jnp.abs(jnp.sum(a * b, axis=0)) / size, 0), initial=0.0)


def _fitting_weights(
    task: Task, cloud: Unconstrained, log_weights: Float[Array, " N"]
) -> Float[Array, " N"]:
    """Weights of points for fits: rare combinations, whose points may weigh next to nothing, count
    for a share of their own."""
    if task.num_combinations == 1:
        return jnp.exp(log_weights)
    member = task.member(cloud)
    logs = jnp.where(member.T, log_weights[None, :], -jnp.inf)
    mass = jax.scipy.special.logsumexp(logs, axis=1)
    share = (1 - _RARE) * jnp.exp(mass) + _RARE / task.num_combinations
    raised = log_weights + (jnp.log(share) - mass)[task.which(cloud)]
    return jnp.where(log_weights > -jnp.inf, jnp.exp(raised), 0)


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
            rise = gain(there, at)
            moves = jnp.log(jax.random.uniform(dice_key, (count,), at.dtype)) < rise
            state = choose(moves, offer, cloud), jnp.where(moves, there, at)
            return state, jnp.mean(jnp.exp(jnp.minimum(rise, 0)))

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
