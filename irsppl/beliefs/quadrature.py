"""Quadrature: one continuous latent per arm, on a grid of nodes that follows the data.

Within a compiled program the nodes stay where they are and only their weights change. On the host,
after an update, an arm whose posterior has become narrow beside the spacing of its nodes, or has
reached the end of them, gets new nodes: the log-posterior is computed afresh from the rewards seen.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Self, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from irsppl._checks import check_levels
from irsppl._fields import changed
from irsppl.beliefs._abilities import Upkeep
from irsppl.beliefs._inverse import likely_latents, points_between
from irsppl.beliefs._nodes import lay
from irsppl.beliefs._points import Points, copied
from irsppl.beliefs._types import ArmModel, Params

# Nodes lie evenly over +-6 standard deviations of the prior mapped to a standard normal. 256 of
# them are 0.047 apart.
DEFAULT_NODES = 256
# With 16 nodes, 0.8 apart, the trapezoid rule gives a normal law's moments to 1e-6 or better.
LEAST_NODES = 16
_REACH = 6.0
# New nodes are wanted once the effective number of nodes falls below this (the posterior's standard
# deviation is then two spacings), or an end node comes within so many nats of the heaviest.
_LEAST_NODES_IN_USE = 7.0
_NEAR_END = 12.0
# Spacing over the posterior's standard deviation: at 2 the trapezoid rule is off by 0.7 %, at 3 by
# a tenth (exp(-2 pi^2 / ratio^2)).
_WIDEST_SPACING = 2.0
# New nodes are wanted too where each half of the nodes gives a mean so far from that of all, in
# standard deviations: a mode has become too narrow for its nodes, though others have enough.
_HALVES_APART = 0.01
_POINTERS = 32  # rewards, and quantiles of the prior, that modes are looked for from
_BUFFER = 512  # rewards that are kept at first, where there are too many kinds to count
_BLOCK = 256  # rewards that are weighed at a time
_DRAWS = 512  # rewards that are drawn from a node's law to tell it from its neighbour's


class Record(eqx.Module):
    """The data of each arm as rewards and how often each came; padding came 0 times."""

    rewards: Float[Array, "K B"]
    times: Float[Array, "K B"]
    seen: Int[Array, " K"]


class Quadrature(Points, Upkeep):
    """Independent arms on nodes, one continuous latent each.

    Nodes start on quantiles of each prior, weighted by the density of the quantile's normal score.
    """

    record: Record | None
    gap: Float[Array, " K"]  # error that finer nodes found when these were laid
    missed: Bool[Array, " K"]  # whether a reward since then points between nodes

    def __init__(
        self,
        models: Sequence[ArmModel],
        groups: Sequence[Sequence[int]],
        num_nodes: int,
        reason: str,
    ):
        params, weights = [], []
        for model, group in zip(models, groups, strict=True):
            nodes, log_weights = copied(_nodes(model, num_nodes), len(group))
            params.append(nodes)
            weights.append(log_weights)
        super().__init__(models, groups, params, weights, "quadrature", reason)
        listed = [model.reward_values for model in self.models]
        size = max(_BUFFER if values is None else len(values) for values in listed)
        rewards = np.zeros((self.num_arms, size))
        for model, group, values in zip(self.models, self.groups, listed, strict=True):
            row = np.full(size, model.support.inside)
            if values is not None:
                row[: len(values)] = values
            rewards[list(group)] = row
        self.record = Record(
            jnp.asarray(rewards, self.mu.dtype),
            jnp.zeros((self.num_arms, size), self.mu.dtype),
            jnp.zeros(self.num_arms, jnp.int32),
        )
        self.gap = jnp.zeros(self.num_arms, self.mu.dtype)
        self.missed = jnp.zeros(self.num_arms, bool)

    # ---- the record of rewards
    def _counts(self) -> np.ndarray:
        """Which arms have so few possible rewards that counting them is enough."""
        counted = np.zeros(self.num_arms, bool)
        for model, group in zip(self.models, self.groups, strict=True):
            counted[list(group)] = model.reward_values is not None
        return counted

    def sized(self, horizon: int) -> Self:
        if self.record is None or self._counts().all():
            return self
        more = horizon - self.record.rewards.shape[1]
        if more <= 0:
            return self
        rewards = jnp.pad(self.record.rewards, ((0, 0), (0, more)), mode="edge")
        times = jnp.pad(self.record.times, ((0, 0), (0, more)))
        return changed(self, record=Record(rewards, times, self.record.seen))

    def for_simulation(self) -> Self:
        return changed(self, record=None)

    def recorded(self) -> tuple[Any, int]:
        if self.record is None:
            return 0, 0
        return self.record.seen, self.record.rewards.shape[1]

    def given(self, arm: Array, reward: Array) -> Self:
        updated = super().given(arm, reward)
        if self.record is None:
            return updated
        reward = jnp.asarray(reward, self.mu.dtype)
        size = self.record.rewards.shape[1]
        nearest = jnp.argmin(jnp.abs(self.record.rewards[arm] - reward))
        counted = jnp.asarray(self._counts())[arm]
        seen = self.record.seen[arm]
        place = jnp.where(counted, nearest, jnp.minimum(seen, size - 1))
        record = Record(
            self.record.rewards.at[arm, place].set(
                jnp.where(counted, self.record.rewards[arm, place], reward)
            ),
            self.record.times.at[arm, place].add(1),
            self.record.seen.at[arm].add(1),
        )
        missed = self.missed.at[arm].set(self.missed[arm] | self._misses(arm, reward, updated))
        return changed(updated, record=record, missed=missed)

    def _misses(self, arm: Array, reward: Array, after: Points) -> Bool[Array, ""]:
        """Whether the reward points to where no node is."""
        found = jnp.asarray(False)
        for model, group, params in zip(self.models, self.groups, self.params, strict=True):
            if model.reward_values is not None:
                continue  # what one of few rewards says changes slowly with the latent
            place = jnp.argmax(jnp.asarray(group) == arm)
            own = jax.tree.map(lambda leaf, i=place: leaf[i][None], params)
            order = _node_order(own)[0]
            nodes = jax.tree.map(lambda leaf, o=order: leaf[0][o], own)
            logs = self.log_weights[arm][order], after.log_weights[arm][order]
            hidden = points_between(model, nodes, *logs, reward)
            found |= jnp.any(jnp.asarray(group) == arm) & hidden
        return found

    def cdf(self, x: Any) -> Float[Array, " K"]:
        """Straight between nodes, half of whose weight lies below them (see `laws.Smooth`)."""
        check_levels("x", x, self.num_arms)
        weights, levels = self.weights, self._per_arm(x)[:, 0]
        padded = jnp.pad(weights, ((0, 0), (1, 1)))
        below = jnp.cumsum(weights, 1) - weights / 2 - (padded[:, 2:] - padded[:, :-2]) / 24
        between = jax.vmap(lambda x, at, below: jnp.interp(x, at, below, left=0.0, right=1.0))
        return between(levels, self.mu, jnp.clip(below, 0, 1))

    def sample_means(self, key: Array) -> Float[Array, " K"]:
        """From all between halfway to neighbours: arms with the same nodes must not tie."""
        node_key, place_key = jax.random.split(key)
        node = jax.random.categorical(node_key, self.log_weights, axis=1)
        u = jax.random.uniform(place_key, node.shape, self.mu.dtype) - 0.5
        near = jnp.clip(node + jnp.where(u < 0, -1, 1), 0, self.num_points - 1)
        own, other = (jnp.take_along_axis(self.mu, j[:, None], axis=1)[:, 0] for j in (node, near))
        return own + jnp.abs(u) * (other - own)

    # ---- new nodes
    def _in_need(self) -> Bool[Array, " K"]:
        """Arms whose posterior is narrow beside the nodes' spacing, or has reached their end."""
        used = 1 / jnp.sum(self.weights**2, axis=1)
        halves, rows = [], []
        for mu, logs in self._ordered():
            ends = jnp.maximum(logs[:, 0], logs[:, -1])
            near = ends > jnp.max(logs, axis=1) - _NEAR_END
            rows.append(near | jnp.isinf(_tails(logs, mu)))
            halves.append(_halves_apart(logs, mu))
        # Not where nodes just laid are no better: new ones after each reward would not help.
        least = jnp.maximum(_HALVES_APART * self.mean_sd(), 3 * self.gap)
        coarse = (used < _LEAST_NODES_IN_USE) | (self._join(halves) > least)
        return coarse | self.missed | self._join(rows) | jnp.isnan(used)

    def _ordered(self) -> list[tuple[Float[Array, "G N"], Float[Array, "G N"]]]:
        """Mean rewards and log-weights of each group, in order of the latent."""
        rows = []
        for group, params in zip(self.groups, self.params, strict=True):
            arms, order = np.array(group), _node_order(params)
            both = self.mu[arms], self.log_weights[arms]
            rows.append(tuple(jnp.take_along_axis(each, order, axis=1) for each in both))
        return rows  # type: ignore[return-value]

    def wants_care(self) -> Bool[Array, ""]:
        if self.record is None:
            return jnp.asarray(False)
        return jnp.any(self._in_need() & (self.record.seen > 0))

    def tended(self, before: Any) -> Self:
        """New nodes for the arms that need them, from the rewards seen."""
        if self.record is None:
            return self
        belief, seen = self, np.asarray(self.record.seen)
        full = ~self._counts() & (seen > self.record.rewards.shape[1])
        for arm in np.flatnonzero(np.asarray(_needy(self)) & (seen > 0)):
            moved = None if full[arm] else _moved(belief, int(arm))
            belief = belief if moved is None else cast(Self, moved)
        _warn_if_coarse(belief, full)
        return belief

    def check_resolution(self, periods: int) -> None:
        ratio = _spacing_after(self, periods)
        if ratio <= _WIDEST_SPACING:
            return
        enough = int(np.ceil(self.num_points * ratio))
        warnings.warn(
            f"{self.num_points} quadrature nodes are too coarse for {periods} rewards of an arm: "
            f"its posterior would become narrower than their spacing by a factor of {ratio:.1f}, "
            "and nodes stay where they are in simulations and sampled bounds; give "
            f"num_particles={enough}",
            stacklevel=3,
        )

    @eqx.filter_jit
    def mean_error(self) -> Float[Array, " K"]:
        """Estimated error of the predictive means: how far each half of the nodes is from all.

        Every second node is the same rule at twice the spacing, in two ways. For a smooth
        posterior the rule itself is far better than its halves (their error is near the fourth
        root of its own, relative to the posterior's standard deviation), so the estimate is on the
        safe side. What lies beyond the ends is added as if weights went on falling as they do
        there, and what finer nodes found when these were laid. Infinite where weights rise at an
        end, because the data lie beyond the nodes, and where a reward points between two of them:
        elsewhere than inside compiled programs, new nodes are laid then.
        """
        rows = []
        for mu, logs in self._ordered():
            rows.append(_halves_apart(logs, mu) + _tails(logs, mu))
        return jnp.where(self.missed, jnp.inf, self._join(rows) + self.gap)


def _node_order(params: Params) -> Int[Array, "G N"]:
    """Points are kept in order of their mean reward; nodes lie in order of the latent."""
    (latent,) = params.values()
    return jnp.argsort(latent.reshape(*latent.shape[:2], -1)[..., 0], axis=1)


_needy = eqx.filter_jit(Quadrature._in_need)


def _mean(log_weights: Float[Array, "G N"], mu: Float[Array, "G N"]) -> Float[Array, " G"]:
    return jnp.sum(jax.nn.softmax(log_weights, axis=1) * mu, axis=1)


def _halves_apart(logs: Float[Array, "G N"], mu: Float[Array, "G N"]) -> Float[Array, " G"]:
    """How far the mean of every second node is from that of all, in the worse of two ways."""
    every = _mean(logs, mu)
    return jnp.maximum(*(jnp.abs(_mean(logs[:, i::2], mu[:, i::2]) - every) for i in (0, 1)))


def _tails(logs: Float[Array, "G N"], mu: Float[Array, "G N"]) -> Float[Array, " G"]:
    """Error of the mean from leaving out what lies beyond the ends."""
    every = _mean(logs, mu)
    return _beyond(logs, mu, every) + _beyond(logs[:, ::-1], mu[:, ::-1], every)


def _beyond(logs: Float[Array, "G N"], mu: Float[Array, "G N"], mean: Array) -> Float[Array, " G"]:
    """Error of the mean from leaving out what lies before the first node: a geometric tail."""
    weight = jnp.exp(logs[:, 0])
    ratio = jnp.exp(logs[:, 0] - logs[:, 1])
    next_mu = 2 * mu[:, 0] - mu[:, 1]
    tail = weight * ratio / (1 - ratio) * jnp.abs(next_mu - mean)
    tail = jnp.where(ratio < 1, tail, jnp.inf)
    return jnp.where(weight > 1e-30, tail, 0)  # also where both weights are zero


def can_serve(model: ArmModel) -> bool:
    return model.dim == 1 and not model.has_discrete and model.has_icdf


def _nodes(model: ArmModel, num_nodes: int) -> tuple[Params, Array]:
    from scipy.special import ndtr

    scores = np.linspace(-_REACH, _REACH, num_nodes)
    dtype = jnp.result_type(float)
    # Float32 has no number between 1 - 6e-8 and 1: quantiles of the upper tail need float64.
    with jax.enable_x64(True):
        uniforms = jnp.asarray(ndtr(scores), jnp.float64)[:, None]
        host = jax.tree.map(np.asarray, _quantiles(model, uniforms))
    for name, leaf in host.items():
        if not np.all(np.isfinite(leaf)):
            raise ValueError(
                f"quadrature cannot place nodes for {name!r} of {model.name}: its prior has no "
                "finite quantiles within six standard scores; use representation='particles'"
            )
    params = {name: jnp.asarray(leaf, dtype) for name, leaf in host.items()}
    return params, jnp.asarray(-0.5 * scores**2, dtype)


@eqx.filter_jit
def _quantiles(model: ArmModel, uniforms: Float[Array, "N 1"]) -> Params | None:
    return jax.vmap(model.prior_from_uniforms)(uniforms)


# ---- new nodes, on the host in float64


@eqx.filter_jit
def _posterior(
    model: ArmModel, x: Float[Array, " M"], rewards: Float[Array, " B"], times: Array, blocks: Array
) -> tuple[Params, Float[Array, " M"], Float[Array, " M"]]:
    """Latents, mean rewards and log-posterior at unconstrained points."""
    params = jax.vmap(model.constrain)(x[:, None])
    prior = jax.vmap(model.log_prior_unconstrained)(x[:, None])
    at_points = jax.vmap(model.log_likelihood, in_axes=(0, None))

    def add(i: Array, total: Array) -> Array:
        def part(leaf: Array) -> Array:
            return jax.lax.dynamic_slice_in_dim(leaf, i * _BLOCK, _BLOCK)

        each = jax.vmap(at_points, in_axes=(None, 0))(params, part(rewards))
        many = part(times)[:, None]
        return total + jnp.sum(jnp.where(many > 0, many * each, 0), axis=0)

    total = jax.lax.fori_loop(0, blocks, add, prior)
    means = jax.vmap(lambda p: model.mean(p))(params)
    return params, means, jnp.where(jnp.isnan(total), -jnp.inf, total)


def _moved(belief: Quadrature, arm: int) -> Quadrature | None:
    """The belief with new nodes for one arm, or None where no point has a finite posterior."""
    record = belief.record
    assert record is not None
    group = next(g for g, arms in enumerate(belief.groups) if arm in arms)
    place = belief.groups[group].index(arm)
    model, num_nodes = belief.models[group], belief.num_points
    (name,) = belief.params[group]
    size = record.rewards.shape[1]
    short = -size % _BLOCK
    rewards = np.pad(np.asarray(record.rewards[arm], np.float64), (0, short), mode="edge")
    times = np.pad(np.asarray(record.times[arm], np.float64), (0, short))
    blocks = -(-int(np.max(np.flatnonzero(times), initial=0) + 1) // _BLOCK)

    def weigh(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """At any number of points, in portions of one size."""
        found, portion = [], max(num_nodes, DEFAULT_NODES)
        for start in range(0, len(x), portion):
            part = x[start : start + portion]
            padded = np.pad(part, (0, portion - len(part)), mode="edge")
            at, mu, total = _posterior(model, jnp.asarray(padded), *data)
            found.append([np.asarray(a)[: len(part)] for a in (at[name], mu, total)])
        latent, means, logs = (np.concatenate(column) for column in zip(*found, strict=True))
        return latent, means, logs

    with jax.enable_x64(True):
        data = jnp.asarray(rewards), jnp.asarray(times), jnp.asarray(blocks)
        old = np.asarray(belief.params[group][name][place], np.float64)
        start = _starts(model, name, old, rewards[times > 0])
        laid = lay(weigh, start, num_nodes)
    if laid is None:
        return None
    order = np.argsort(laid.means, kind="stable")
    dtype = belief.mu.dtype
    params = list(belief.params)
    latent = jnp.asarray(laid.latent[order], dtype)
    params[group] = {name: params[group][name].at[place].set(latent)}
    return changed(
        belief,
        params=tuple(params),
        mu=belief.mu.at[arm].set(jnp.asarray(laid.means[order], dtype)),
        log_weights=belief.log_weights.at[arm].set(jnp.asarray(laid.logs[order], dtype)),
        gap=belief.gap.at[arm].set(laid.gap),
        missed=belief.missed.at[arm].set(False),
    )


def _starts(model: ArmModel, name: str, old: np.ndarray, rewards: np.ndarray) -> np.ndarray:
    """Unconstrained points to look for modes from: the old nodes, the prior, what rewards say."""
    prior = np.asarray(_nodes(model, _POINTERS)[0][name], np.float64)
    latents = np.concatenate([old, prior])
    if model.reward_values is None:
        order = np.argsort(latents.reshape(len(latents), -1)[:, 0])
        # Evenly over the rewards by size: the order in which they came must not matter.
        by_size = np.unique(rewards)
        spread = np.linspace(0, len(by_size) - 1, _POINTERS).round().astype(int)
        said = jnp.asarray(by_size[spread])
        told = likely_latents(model, {name: jnp.asarray(latents[order])}, said)
        latents = np.concatenate([latents, np.asarray(told)])
    return np.asarray(_unconstrained(model, {name: jnp.asarray(latents)}))[:, 0]


@eqx.filter_jit
def _unconstrained(model: ArmModel, params: Params) -> Float[Array, "M 1"]:
    return jax.vmap(model.unconstrain)(params)


def _spacing_after(belief: Quadrature, periods: int) -> float:
    """Spacing of nodes over the posterior's standard deviation after so many rewards, at worst.

    One reward tells two neighbouring nodes apart by the squared Hellinger distance H of its laws
    there. For two normal laws, h standard deviations apart, H is 1 - exp(-h^2 / 8); n rewards add
    up as h^2 does. Looked at in the middle half of each arm's belief.
    """
    tables, worst = belief.reward_tables(), 0.0
    for model, group, params in zip(belief.models, belief.groups, belief.params, strict=True):
        order = np.asarray(_node_order(params))
        weights = np.asarray(belief.weights, np.float64)[list(group)]
        below = np.cumsum(np.take_along_axis(weights, order, axis=1), axis=1)[:, :-1]
        middle = (below > 0.25) & (below < 0.75)
        if not middle.any():
            continue
        if tables is None or tables.likelihood is None:
            apart = np.asarray(_hellinger(model, params, jnp.asarray(order)), np.float64)
        else:
            law = np.take_along_axis(tables.likelihood[list(group)], order[:, :, None], axis=1)
            apart = 0.5 * np.sum(np.diff(np.sqrt(law), axis=1) ** 2, axis=2)
        farthest = apart[middle & np.isfinite(apart)].max(initial=0.0)
        worst = max(worst, float(np.sqrt(-8 * periods * np.log1p(-min(farthest, 1 - 1e-12)))))
    return worst


@eqx.filter_jit
def _hellinger(model: ArmModel, params: Params, order: Int[Array, "G N"]) -> Float[Array, "G N-1"]:
    """Squared Hellinger distance between the laws of a reward at neighbouring nodes.

    Half of the rewards are drawn from either law. The integrand (sqrt p - sqrt q)^2 / (p + q) is
    never negative, so that few draws do.
    """
    log_density = jax.vmap(model.log_likelihood, in_axes=(None, 0))
    keys = jax.random.split(jax.random.key(0), _DRAWS)

    def apart(here: Params, there: Params) -> Array:
        draws = [jax.vmap(model.sample_reward, in_axes=(0, None))(keys, at) for at in (here, there)]
        rewards = jnp.concatenate(draws)
        p, q = log_density(here, rewards), log_density(there, rewards)
        share = jax.nn.sigmoid(p - q)
        return jnp.mean((jnp.sqrt(share) - jnp.sqrt(1 - share)) ** 2)

    def along(arm: Params, order: Array) -> Array:
        nodes = jax.tree.map(lambda leaf: leaf[order], arm)
        here = jax.tree.map(lambda leaf: leaf[:-1], nodes)
        there = jax.tree.map(lambda leaf: leaf[1:], nodes)
        return jax.vmap(apart)(here, there)

    return jax.vmap(along)(params, order)


def _warn_if_coarse(belief: Quadrature, full: np.ndarray) -> None:
    error, sd = np.asarray(belief.mean_error()), np.asarray(belief.mean_sd())
    poor = error > 0.1 * sd
    if not poor.any():
        return
    arm = int(np.argmax(np.where(poor, error / np.maximum(sd, 1e-30), 0)))
    why = (
        f"its record of {belief.record.rewards.shape[1]} rewards is full"  # type: ignore[union-attr]
        if full[arm]
        else f"{belief.num_points} nodes are too few; give more with num_particles="
    )
    mean = float(belief.predictive_mean()[arm])
    warnings.warn(
        f"the quadrature of arm {arm} is coarse: its mean reward {mean:.4g} has an error of "
        f"up to {error[arm]:.2g}, beside a standard deviation of {sd[arm]:.2g}: {why}",
        stacklevel=4,
    )
