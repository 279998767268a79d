"""Beliefs that are weighted points in the parameter space of NumPyro models.

Quadrature nodes, enumerated latents and particles all look alike once they have weights: a reward
multiplies each weight by its likelihood there, and every question is a weighted sum over points.
"""

import abc
from collections.abc import Sequence
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from irsppl._checks import check_levels, host64, is_concrete
from irsppl._fields import changed
from irsppl.beliefs._abilities import ExactLaws, FiniteRewards, RewardTables
from irsppl.beliefs._base import Belief
from irsppl.beliefs._future import Future
from irsppl.beliefs._point_future import PointsFuture
from irsppl.beliefs._types import ArmModel, Params
from irsppl.inner.laws import Smooth, compositions, count_law, merged
from irsppl.outcomes import Outcome

# Rewards whose likelihoods are computed at once: one program, however many there are.
_REWARDS = 256


# ---- one model at many points, all arrays with the points last


def log_likelihoods(
    model: ArmModel, params: Params, rewards: Float[Array, " T"], arm: Any = None
) -> Float[Array, "T N"]:
    """Log-likelihood of each reward at each point (`params` has a leading axis N)."""
    at_points = jax.vmap(lambda p, r: model.log_likelihood(p, r, arm), in_axes=(0, None))
    values = model.reward_values
    if values is not None and len(values) <= rewards.shape[0]:
        # Few rewards are possible: one column per value, then a look-up.
        known = jnp.asarray(values, rewards.dtype)
        table = jax.vmap(at_points, in_axes=(None, 0))(params, known)
        return table[jnp.argmin(jnp.abs(rewards[:, None] - known[None, :]), axis=1)]
    return jax.vmap(at_points, in_axes=(None, 0))(params, rewards)


def sample_rewards(
    model: ArmModel, key: Array, params: Params, horizon: int, arm: Any = None
) -> Float[Array, " T"]:
    """Rewards at one point; a longer horizon extends a shorter one."""
    keys = jax.vmap(lambda n: jax.random.fold_in(key, n))(jnp.arange(horizon))
    return jax.vmap(lambda k: model.sample_reward(k, params, arm))(keys)


@jax.jit
def normalise(log_weights: Array) -> Array:
    return log_weights - jax.scipy.special.logsumexp(log_weights, axis=-1, keepdims=True)


def copied(tree: Any, count: int) -> Any:
    """A leading axis of so many copies: one for each arm of a group."""
    return jax.tree.map(lambda leaf: jnp.stack([leaf] * count), tree)


class PointBelief(Belief, FiniteRewards):
    """Weighted points in the space of a model's latents, the same number for every arm."""

    mu: eqx.AbstractVar[Array]  # mean rewards: [K, N], or [N, K] where arms share the points
    log_weights: eqx.AbstractVar[Array]  # [K, N] or [N]
    params: eqx.AbstractVar[Any]  # latents
    kind: eqx.AbstractVar[str]
    reason: eqx.AbstractVar[str]  # why this representation, for the repr

    @property
    @abc.abstractmethod
    def parts(self) -> tuple[tuple[ArmModel, tuple[int, ...]], ...]:
        """Models, and the arms that each is of."""

    @abc.abstractmethod
    def mean_max(self) -> Float[Array, ""]:
        """E[max_a mu_a]."""

    @abc.abstractmethod
    def outcome_at(self, chosen: Array, key: Array, horizon: int) -> Outcome:
        """The future of the chosen points: one, or one of each arm's own `[K]`."""

    @abc.abstractmethod
    def _averaged(self, values: Array) -> Float[Array, " K"]:
        """Means over the points of numbers in the shape of `mu`."""

    @abc.abstractmethod
    def _per_arm(self, x: Any) -> Array:
        """One number, or one per arm, beside `mu`."""

    @property
    def num_points(self) -> int:
        """N."""
        return self.log_weights.shape[-1]

    @property
    def weights(self) -> Float[Array, "... N"]:
        return jnp.exp(self.log_weights)

    @property
    def is_binary(self) -> bool:
        """Whether every arm has two possible rewards, so that data are one count per arm."""
        return False

    def predictive_mean(self) -> Array:
        return self._averaged(self.mu)

    def expected_max(self, lam: Any) -> Array:
        check_levels("lam", lam, self.num_arms)
        return self._averaged(jnp.maximum(self.mu, self._per_arm(lam)))

    def cdf(self, x: Any) -> Array:
        check_levels("x", x, self.num_arms)
        return self._averaged((self.mu <= self._per_arm(x)).astype(self.mu.dtype))

    def mean_sd(self) -> Array:
        return jnp.sqrt(self._averaged((self.mu - self._per_arm(self.predictive_mean())) ** 2))

    def along_centred(self, rewards: Array) -> tuple[Future, Array]:
        level = jnp.sort(self.mu, axis=None)[self.mu.size // 2]
        return changed(self, mu=self.mu - level).along(rewards), level

    def draw(self, key: Array, horizon: int) -> Outcome:
        parameter_key, reward_key = jax.random.split(key)
        chosen = jax.random.categorical(parameter_key, self.log_weights, axis=-1)
        return self.outcome_at(chosen, reward_key, horizon)

    def effective_sample_size(self) -> Float[Array, "..."]:
        """1 / sum of squared weights (per arm with points of its own): how many points count."""
        return 1 / jnp.sum(self.weights**2, axis=-1)

    def footprint(self, horizon: int) -> int:
        return 3 * self.num_arms * (horizon + 1) * self.num_points

    def _why_not_finite(self) -> str:
        return why_impossible(self.kind, self.num_points)


class Points(PointBelief, ExactLaws):
    """Independent arms, each with its own N weighted points, sorted by their mean reward.

    Arms of one model form a group, so that their points share one array: params[g] has leading axes
    `[arms in group, N]`, and `groups[g]` says which arms these are.
    """

    mu: Float[Array, "K N"]  # mean reward at each point, rising
    log_weights: Float[Array, "K N"]
    params: tuple[Params, ...]
    models: tuple[ArmModel, ...] = eqx.field(static=True)
    groups: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    kind: str = eqx.field(static=True)
    reason: str = eqx.field(static=True)

    def __init__(
        self,
        models: Sequence[ArmModel],
        groups: Sequence[Sequence[int]],
        params: Sequence[Params],
        log_weights: Sequence[Array],
        kind: str,
        reason: str,
    ):
        self.models, self.kind, self.reason = tuple(models), kind, reason
        self.groups = tuple(tuple(group) for group in groups)
        columns = list(params), list(log_weights)
        self.params, self.mu, logs = _arranged(self.models, self.groups, *columns)
        self.log_weights = logs.astype(self.mu.dtype)

    # ---- groups of arms
    def _join(self, parts: Sequence[Array]) -> Array:
        """Rows of all groups, in the order of the arms."""
        return _joined(self.groups, parts)

    def log_likelihoods(self, rewards: Float[Array, "K T"]) -> Float[Array, "K T N"]:
        """Of each reward, at each of its arm's points."""
        parts = []
        for model, group, params in zip(self.models, self.groups, self.params, strict=True):
            own = jax.vmap(lambda p, r, m=model: log_likelihoods(m, p, r))
            parts.append(own(params, rewards[np.array(group)]))
        return self._join(parts)

    @property
    def num_arms(self) -> int:
        return self.mu.shape[0]

    @property
    def parts(self) -> tuple[tuple[ArmModel, tuple[int, ...]], ...]:
        return tuple(zip(self.models, self.groups, strict=True))

    def __repr__(self) -> str:
        names = ", ".join(dict.fromkeys(model.name for model in self.models))
        arms = f"{self.num_arms} arm{'s' * (self.num_arms > 1)}"
        return f"{self.kind} belief of {arms} ({names}): {self.num_points} points; {self.reason}"

    def _averaged(self, values: Array) -> Array:
        return jnp.sum(self.weights * values, axis=1)

    def _per_arm(self, x: Any) -> Float[Array, "K 1"]:
        return jnp.broadcast_to(jnp.asarray(x, self.mu.dtype), (self.num_arms,))[:, None]

    def check_reward(self, arm: Any, reward: Any) -> None:
        if not is_concrete(arm, reward):
            return
        arms, rewards = np.broadcast_arrays(np.asarray(arm), np.asarray(reward))
        for model, group in zip(self.models, self.groups, strict=True):
            own = rewards[np.isin(arms, group)]
            if own.size:
                check_support(model, own if own.size > 1 else own.item())

    def given(self, arm: Array, reward: Array) -> Self:
        reward = jnp.asarray(reward, self.mu.dtype)
        rows = []
        for model, group, params in zip(self.models, self.groups, self.params, strict=True):
            # The arm's place in its group; a group that does not hold it computes a row in vain.
            place = jnp.argmax(jnp.asarray(group) == arm)
            own = jax.tree.map(lambda leaf, i=place: leaf[i], params)
            rows.append(log_likelihoods(model, own, reward[None])[0])
        member = np.zeros(self.num_arms, int)
        for g, group in enumerate(self.groups):
            member[list(group)] = g
        row = jnp.stack(rows)[jnp.asarray(member)[arm]]
        updated = normalise(self.log_weights[arm] + row)
        return eqx.tree_at(lambda b: b.log_weights, self, self.log_weights.at[arm].set(updated))

    def outcome_at(self, chosen: Array, key: Array, horizon: int) -> Outcome:
        parts = []
        for g, (group, params) in enumerate(zip(self.groups, self.params, strict=True)):
            arms = np.array(group)
            keys = jax.vmap(lambda a: jax.random.fold_in(key, a))(jnp.asarray(arms))

            def draw(k: Array, own: Params, j: Array, m: ArmModel = self.models[g]) -> Array:
                return sample_rewards(m, k, jax.tree.map(lambda leaf: leaf[j], own), horizon)

            parts.append(jax.vmap(draw)(keys, params, chosen[arms]))
        means = jnp.take_along_axis(self.mu, chosen[:, None], axis=1)[:, 0]
        return Outcome(means, self._join(parts).astype(means.dtype))

    def along(self, rewards: Float[Array, "K T"]) -> PointsFuture:
        return PointsFuture(self.mu, self.log_weights, self.log_likelihoods(rewards))

    # ---- of the unknown means
    def sample_means(self, key: Array) -> Array:
        chosen = jax.random.categorical(key, self.log_weights, axis=1)
        return jnp.take_along_axis(self.mu, chosen[:, None], axis=1)[:, 0]

    def mean_max(self) -> Array:
        return best_of(self.mu, self.weights)

    @property
    def is_binary(self) -> bool:
        values = [model.reward_values for model in self.models]
        return all(v is not None and len(v) == 2 for v in values)

    def future_mean_max(self, n: Array, horizon: int) -> Float[Array, ""]:
        """E[max_a mu_hat_{a,n}] for binary rewards, a sum over counts; n <= horizon."""
        parts = []
        for model, params in zip(self.models, self.params, strict=True):
            assert model.reward_values is not None
            values = jnp.asarray(model.reward_values, self.mu.dtype)
            table = jax.vmap(lambda p, m=model, v=values: _table(m, p, v))
            parts.append(table(params))  # [G, N, 2]
        low, high = jnp.moveaxis(self._join(parts), -1, 0)
        came = jnp.arange(horizon + 1, dtype=self.mu.dtype)[None, :, None]
        rest = jnp.maximum(n - came, 0)
        # A value that did not come up says nothing, however unlikely it was: 0 * -inf is 0.
        heads = jnp.where(came > 0, came * high[:, None, :], 0)
        tails = jnp.where(rest > 0, rest * low[:, None, :], 0)
        joint = self.log_weights[:, None, :] + heads + tails
        evidence = jax.scipy.special.logsumexp(joint, axis=-1)
        ways = gammaln(n + 1.0) - gammaln(came + 1) - gammaln(rest + 1)
        mass = jnp.where(came <= n, jnp.exp(evidence[..., None] + ways), 0)[..., 0]
        means = jnp.einsum("ksn,kn->ks", jax.nn.softmax(joint, axis=-1), self.mu)
        order = jnp.argsort(means, axis=1)
        return best_of(*(jnp.take_along_axis(each, order, axis=1) for each in (means, mass)))

    # ---- exact laws where rewards are few
    def law(self, n: int | None) -> list[Any] | None:
        """By summation over the counts of each possible reward (see `ExactLaws`)."""
        weights = np.exp(host64(self.log_weights))
        weights /= weights.sum(axis=1, keepdims=True)
        mu = host64(self.mu)
        if n is None:
            kind = Smooth if self.kind == "quadrature" else merged  # nodes: a continuous prior
            return [kind(m, w) for m, w in zip(mu, weights, strict=True)]
        laws: list[Any] = [None] * self.num_arms
        for model, group, params in zip(self.models, self.groups, self.params, strict=True):
            values = model.reward_values
            counts = None if values is None else compositions(n, len(values))
            if values is None or counts is None:
                return None
            for place, arm in enumerate(group):
                own = jax.tree.map(lambda leaf, i=place: leaf[i], params)
                with np.errstate(divide="ignore"):
                    logs = np.log(value_likelihoods(model, own, np.asarray(values, np.float64)))
                laws[arm] = count_law(counts, logs, np.log(weights[arm]), mu[arm])
        return laws

    def reward_tables(self) -> RewardTables | None:
        """What planning over counts needs, or None where rewards may take infinitely many values.

        Exact for these points: of a particle cloud it would say nothing of the prior behind it.
        """
        sizes = [len(v) for model in self.models if (v := model.reward_values) is not None]
        if len(sizes) < len(self.models):
            return None
        most = max(2, *sizes)
        likelihood = np.zeros((self.num_arms, self.num_points, most))
        values = np.empty((self.num_arms, most))
        for model, group, params in zip(self.models, self.groups, self.params, strict=True):
            own = np.asarray(model.reward_values, np.float64)
            # Arms with fewer rewards get impossible ones above their own.
            values[list(group)] = np.append(own, own[-1] + 1 + np.arange(most - len(own)))
            for place, arm in enumerate(group):
                at = jax.tree.map(lambda leaf, i=place: leaf[i], params)
                likelihood[arm, :, : len(own)] = value_likelihoods(model, at, own)
        weights = np.exp(host64(self.log_weights))
        return RewardTables(weights / weights.sum(axis=1, keepdims=True), likelihood, values)


def value_likelihoods(
    model: ArmModel, params: Params, values: np.ndarray, arm: Any = None
) -> np.ndarray:
    """`[N, C]`: probability of each of all possible rewards at each point, in float64.

    Recursions over counts multiply these numbers up: rounded to float32 they would cost digits.
    """
    table = np.exp(_in_double(model, params, values, arm))
    total = table.sum(axis=1, keepdims=True)
    if not np.allclose(total, 1, rtol=0, atol=1e-3):
        raise ValueError(
            f"the rewards {values.tolist()} read from {model.name} have probabilities that sum to "
            f"{total.min():.6g} at some point of its latents: they are not all the rewards it has"
        )
    return table / total


def reward_logs(
    model: ArmModel, params: Params, rewards: np.ndarray, arm: Any = None
) -> np.ndarray:
    """`[B, N]`: log-likelihood of each of any number of rewards at each point, in float64."""
    short = -len(rewards) % _REWARDS
    padded = np.pad(rewards, (0, short), mode="edge").reshape(-1, _REWARDS)
    rows = [_in_double(model, params, part, arm).T for part in padded]
    return np.concatenate(rows)[: len(rewards)]


def _in_double(model: ArmModel, params: Params, values: np.ndarray, arm: Any) -> np.ndarray:
    """`[N, C]`: log-likelihoods."""
    host = {name: np.asarray(leaf) for name, leaf in params.items()}
    with jax.enable_x64(True):
        at = {
            name: jnp.asarray(leaf, jnp.float64 if leaf.dtype.kind == "f" else leaf.dtype)
            for name, leaf in host.items()
        }
        arm = None if arm is None else jnp.asarray(arm)
        return np.asarray(_value_table(model, at, jnp.asarray(values), arm))


def best_of(points: Float[Array, "K M"], weights: Float[Array, "K M"]) -> Float[Array, ""]:
    """E[max_a X_a] of independent X_a on rising points: steps of the product of their CDFs."""
    every = jnp.sort(points.ravel())
    below = jax.vmap(lambda m: jnp.searchsorted(m, every, side="right"))(points)
    sums = jnp.pad(jnp.cumsum(weights, axis=1), ((0, 0), (1, 0)))
    product = jnp.prod(jnp.take_along_axis(sums, below, axis=1), axis=0)
    return jnp.sum(every * jnp.diff(product, prepend=0)) / product[-1]


@eqx.filter_jit
def means_at(model: ArmModel, params: Params) -> Float[Array, "G N"]:
    """Mean reward at every point of every arm of a group."""
    return jax.vmap(jax.vmap(lambda p: model.mean(p)))(params)


def _table(model: ArmModel, params: Params, values: Array, arm: Any = None) -> Array:
    """[N, C]: log-likelihood of each possible reward at each point."""
    at = jax.vmap(lambda p, r: model.log_likelihood(p, r, arm), in_axes=(None, 0))
    return jax.vmap(at, in_axes=(0, None))(params, values)


_value_table = eqx.filter_jit(_table)


@eqx.filter_jit
def _arranged(
    models: tuple[ArmModel, ...],
    groups: tuple[tuple[int, ...], ...],
    params: list[Params],
    log_weights: list[Array],
) -> tuple[tuple[Params, ...], Float[Array, "K N"], Float[Array, "K N"]]:
    """Points of each arm in the order of their mean rewards: latents, means, log-weights."""
    means = [means_at(m, p) for m, p in zip(models, params, strict=True)]
    order = [jnp.argsort(mu, axis=1) for mu in means]
    sorted_params = tuple(
        jax.tree.map(lambda leaf, o=o: _take_rows(leaf, o), p)
        for p, o in zip(params, order, strict=True)
    )
    mu, logs = (
        _joined(groups, [_take_rows(x, o) for x, o in zip(each, order, strict=True)])
        for each in (means, log_weights)
    )
    return sorted_params, mu, normalise(logs)


def _joined(groups: Sequence[Sequence[int]], parts: Sequence[Array]) -> Array:
    """Rows of all groups, in the order of the arms."""
    return jnp.concatenate(list(parts))[np.argsort([arm for group in groups for arm in group])]


def _take_rows(leaf: Array, order: Array) -> Array:
    """leaf[g, order[g]] for every row g, whatever the trailing axes."""
    return jax.vmap(lambda row, o: row[o])(leaf, order)


def check_support(model: ArmModel, reward: Any) -> None:
    if not np.all(model.support.check(reward)):
        raise ValueError(f"reward must be {model.support} for {model.name}, got {reward!r}")


def why_impossible(kind: str, num_points: int) -> str:
    """Data with zero likelihood at every point leave no posterior; what that means."""
    if kind == "enumeration":
        return "it has zero likelihood whatever the latents are: the model rules it out"
    what = "its cloud" if kind == "particle" else "quadrature"
    return (
        "it has zero likelihood at every one of the points that stand for the latents. Either the "
        "model rules it out, or it is possible only for latents between these points "
        f"({what} has {num_points} points; give more with num_particles=)"
    )
