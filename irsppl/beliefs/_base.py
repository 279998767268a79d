"""The contract of a belief, documented once.

A belief is an immutable pytree over all K arms. Everything downstream asks it only the questions
below, so that a new representation is one file. Arrays are `[K]` over arms; `N` is a number of
sampled rewards per arm.
"""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from irsppl._checks import (
    MOST_PERIODS,
    as_count,
    as_key,
    as_numbers,
    is_concrete,
    require_range,
)
from irsppl.inner.laws import expected_best
from irsppl.outcomes import Outcome

Law = Any  # a law of one number on the host: see irsppl.inner.laws


class Belief(eqx.Module):
    """What is believed of K arms."""

    # ---- what it is
    @property
    @abc.abstractmethod
    def num_arms(self) -> int:
        """K."""

    @property
    def is_independent(self) -> bool:
        """Whether a reward of one arm tells nothing of the others."""
        return True

    # ---- the three questions every solver asks
    @abc.abstractmethod
    def predictive_mean(self) -> Float[Array, " K"]:
        """Mean reward of the next pull of each arm."""

    @abc.abstractmethod
    def _update(self, arm: Array, reward: Array) -> Belief:
        """The posterior after one reward (scalars, maybe traced)."""

    @abc.abstractmethod
    def _sample(self, key: Array, horizon: int) -> Outcome:
        """A future with `horizon` rewards per arm; parameters and rewards from separate keys."""

    # ---- along a sampled future
    @abc.abstractmethod
    def path_means(self, rewards: Float[Array, "K N"]) -> Float[Array, "K N+1"]:
        """`[a, n]`: posterior mean of arm a after its own first n rewards."""

    @abc.abstractmethod
    def path_expected_max(
        self, rewards: Float[Array, "K N"], lam: Float[Array, " K"]
    ) -> Float[Array, "K N+1"]:
        """`[a, n]`: E[max(mu_a, lam_a)] after arm a's own first n rewards."""

    @abc.abstractmethod
    def lattice_expected_best(self, rewards: Float[Array, "K N"]) -> Float[Array, "..."]:
        """`[n_1, ..., n_K]`: E[max_a mu_a] given the first n_b rewards (0..N) of every arm b."""

    def path(self, rewards: Float[Array, "K N"]) -> Path:
        """What `path_means` and `path_expected_max` say of one future, for repeated questions."""
        return Path(self, rewards)

    def means_after(self, rewards: Float[Array, "K N"], counts: Array) -> Float[Array, " K"]:
        """Posterior mean of every arm given the first `counts` (one, or `[K]`) rewards of each."""
        means = self.path_means(rewards)
        counts = jnp.broadcast_to(jnp.asarray(counts), (self.num_arms,))
        return jnp.take_along_axis(means, counts[:, None], axis=1)[:, 0]

    def feedback_means(self, rewards: Float[Array, "K N"]) -> Float[Array, "K N+1"]:
        """`[a, n]`: posterior mean of arm a given the first n rewards of *every* arm."""
        return self.path_means(rewards)

    def means_at(
        self, rewards: Float[Array, "K N"], counts: Int[Array, "M K"]
    ) -> Float[Array, "M K"]:
        """`[m, a]`: posterior mean of arm a given the first counts[m, b] rewards of each arm b."""
        means = self.path_means(rewards)
        return jax.vmap(lambda row, at: row[at])(means, counts.T).T

    def separable_means(
        self, rewards: Float[Array, "K N"], own: Int[Array, "K M"], others: Int[Array, "... M"]
    ) -> Float[Array, "K M"]:
        """`[a, m]`: mean of arm a given own[a, m] of its rewards and others of every other arm.

        others: `[M]`, the same for all arms, or `[K, M]`, so many of each.
        """
        means = self.path_means(rewards)
        return jax.vmap(lambda row, at: row[at])(means, own)

    def lattice_means(self, rewards: Float[Array, "K N"]) -> Float[Array, "K ..."]:
        """`[a, n_1, ..., n_K]`: mean of arm a given the first n_b rewards of every arm b."""
        means = self.path_means(rewards)
        num_arms, size = means.shape
        tables = []
        for arm in range(num_arms):
            shape = [1] * num_arms
            shape[arm] = size
            tables.append(jnp.broadcast_to(means[arm].reshape(shape), (size,) * num_arms))
        return jnp.stack(tables)

    # ---- of the unknown means
    @abc.abstractmethod
    def sample_means(self, key: Array) -> Float[Array, " K"]:
        """One draw of the arms' mean rewards."""

    @abc.abstractmethod
    def sample_future_means(self, key: Array, n: Array, horizon: int) -> Float[Array, " K"]:
        """One draw of the posterior means after n more rewards of every arm.

        n may be traced, a number or one per arm `[K]`, and is at most `horizon`.
        """

    @abc.abstractmethod
    def expected_max(self, lam: Any) -> Float[Array, " K"]:
        """E[max(mu_a, lam)]."""

    @abc.abstractmethod
    def cdf(self, x: Any) -> Float[Array, " K"]:
        """P(mu_a <= x)."""

    @abc.abstractmethod
    def mean_sd(self) -> Float[Array, " K"]:
        """A scale for mu_a (its standard deviation where that is finite)."""

    # ---- optional abilities; the defaults say "not this belief"
    def _sample_truth(self, key: Array, horizon: int) -> Outcome:
        """A future for bounds and simulations, drawn from the prior that the user wrote.

        Beliefs that approximate (particles) sample here from the model itself, together with the
        set in which the bound's posterior means are then computed.
        """
        return self._sample(key, horizon)

    def footprint(self, horizon: int) -> int:
        """Numbers that one future takes while it is worked on; it sizes chunks of futures."""
        return self.num_arms * horizon

    def tell(self) -> Belief:
        """Warn of a belief that knows itself to be inaccurate; what is returned has warned."""
        return self

    def for_simulation(self) -> Belief:
        """The same belief without upkeep that thousands of simulated paths could not afford."""
        return self

    def sized(self, horizon: int) -> Belief:
        """The same belief with room for `horizon` rewards, where it keeps a record of them."""
        return self

    # ---- abilities that some have
    @property
    def brings_sets(self) -> bool:
        """Whether each future for bounds comes with a set that its truth was drawn from."""
        return False

    @property
    def is_binary(self) -> bool:
        """Whether data are one count per arm, so that `future_mean_max` can sum over them."""
        return False

    @property
    def is_approximate(self) -> bool:
        """Whether bounds computed from this state are approximate."""
        return False

    def law(self, n: int | None) -> list[Law] | None:
        """Host float64 laws of the posterior mean of each arm after n rewards (None: of mu_a).

        None when there is no closed form: bounds are then sampled.
        """
        return None

    def exact_expected_best(self, counts: np.ndarray | None) -> float | None:
        """E[max_a of the posterior means after counts[b] rewards of each arm b], host float64.

        counts None: of the true means. None where there is neither a closed form nor a sum.
        """
        if not self.is_independent:
            return None
        if counts is None or np.all(counts == counts[0]):
            laws = self.law(None if counts is None else int(counts[0]))
            return None if laws is None else expected_best(laws)
        chosen = []
        for arm, n in enumerate(counts):
            laws = self.law(int(n))
            if laws is None:
                return None
            chosen.append(laws[arm])
        return expected_best(chosen)

    def finite_support(self) -> tuple[np.ndarray, np.ndarray] | None:
        """(Dirichlet parameters [K, C], values [C]) where rewards take finitely many values."""
        return None

    def reward_tables(self) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """(weights, likelihood, values [K, C]) of points where rewards take finitely many values.

        Host float64. Independent arms: weights [K, N], likelihood [K, N, C]; points that the arms
        share: [N], [N, K, C]. Planning over counts (`ideal`, `opt`) starts from them.
        """
        return None

    def natural_state(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Host (xi [K], nu [K]) when posterior means are (xi + sum of rewards) / (nu + n)."""
        return None

    def kernel_state(self) -> tuple[int, np.ndarray, np.ndarray, np.ndarray] | None:
        """(family code, xi, nu, noise_sd) for the compiled CPU kernels, or None."""
        return None

    def sample_rewards_at(self, key: Array, means: Array, horizon: int) -> Float[Array, "K N"]:
        """Rewards when the arms' true means are known (a fixed truth)."""
        raise ValueError(
            f"means= cannot be used with {type(self).__name__}: a mean does not determine the "
            "reward distribution there"
        )

    def check_reward(self, arm: Any, reward: Any) -> None:
        """Raise `ValueError` if a concrete reward is outside the support."""

    def with_room(self, count: int) -> Belief:
        """The same belief with room for `count` more rewards, where it keeps a record of them."""
        return self

    def wants_care(self) -> Bool[Array, ""]:
        """Whether `tended` should be called; traceable, asked after every update."""
        return jnp.asarray(False)

    def check_resolution(self, periods: int) -> None:
        """Warn where so many further rewards of an arm would be too much for it as it is.

        Asked before whole futures are worked on in compiled programs, which cannot tend a belief.
        """

    def tended(self) -> Belief:
        """The same belief after upkeep that only the host can do, shapes unchanged."""
        return self

    def _why_not_finite(self) -> str:
        """What it means when a possible reward leaves no finite belief."""
        return (
            f"the belief it leads to has numbers that {self._dtype} cannot hold; rescale the "
            "rewards, or work in double precision (jax_enable_x64)"
        )

    def __check_init__(self) -> None:
        """No number enters a belief that is not finite, nor one whose square is not."""
        if is_concrete(self):
            require_range(self)

    # ---- public, shared by all
    def update(self, arm: Any, reward: Any) -> Belief:
        """The belief after seeing `reward` from `arm`; arrays of both update in one call."""
        if is_concrete(arm, reward):
            as_numbers("arm", arm)
            as_numbers("reward", reward)
        arms, rewards = np.shape(arm), np.shape(reward)
        if arms != rewards or len(arms) > 1:
            raise ValueError(
                "arm and reward must both be scalars, or arrays of one length, "
                f"got shapes {arms} and {rewards}"
            )
        self.check_arm(arm)
        numbers = self.as_rewards(arm, reward)
        ready = self.with_room(int(np.prod(rewards, dtype=int)))
        update = _update_many if arms else _update_one
        updated, state = update(ready, jnp.asarray(arm), numbers)
        return ready.settled(updated, state, arm, reward)

    @property
    def _dtype(self) -> np.dtype:
        leaves = (leaf for leaf in jax.tree.leaves(self) if eqx.is_inexact_array(leaf))
        return np.dtype(next(leaves).dtype)

    def as_rewards(self, arm: Any, reward: Any) -> Array:
        """Rewards in the belief's precision, or a `ValueError`: they must be possible and fit."""
        if not is_concrete(arm, reward):
            return jnp.asarray(reward)
        host = as_numbers("reward", reward)
        if np.issubdtype(host.dtype, np.complexfloating):
            raise ValueError(f"reward must be real, got {reward!r}")
        self.check_reward(arm, host if host.ndim else host.item())
        host = host.astype(np.float64)
        most = float(np.sqrt(np.finfo(self._dtype).max))
        if not np.all(np.abs(host) <= most):
            raise ValueError(
                f"reward must be finite and at most {most:.2g} in size, so that {self._dtype} can "
                f"hold its square, got {_shown(host)}"
            )
        return jnp.asarray(host, self._dtype)

    def settled(self, updated: Belief, state: Array, arm: Any, reward: Any) -> Belief:
        """`updated`, tended if it wants that; a `ValueError` if it is not a belief.

        The one place where the belief after a reward is judged, whoever made the update.
        state: what `examined` says of it.
        """
        if not is_concrete(state, updated) or int(state) == _FINE:
            return updated
        updated = updated.tended()
        if not bool(_is_finite(self, updated)):
            raise ValueError(
                f"reward {_shown(np.asarray(reward))} of arm {_shown(np.asarray(arm))} is refused "
                f"and the belief left as it was: {self._why_not_finite()}"
            )
        return updated

    def sample_outcome(self, key: Any, horizon: int) -> Outcome:
        """A future drawn from the belief: `.means [K]`, `.rewards [K, horizon]`."""
        return self._sample(as_key(key), as_count("horizon", horizon, maximum=MOST_PERIODS))

    def check_arm(self, arm: Any) -> None:
        if not is_concrete(arm):
            return
        host = as_numbers("arm", arm)
        integral = np.issubdtype(host.dtype, np.integer)
        if not integral or np.any(host < 0) or np.any(host >= self.num_arms):
            raise ValueError(
                f"arm must be a whole number from 0 to {self.num_arms - 1}, got {host.tolist()}"
            )

    def to_arviz(self, key: Any = 0, num_draws: int = 1000) -> Any:
        """Draws of the arms' mean rewards, and predictive rewards, as ArviZ data."""
        from irsppl.beliefs._arviz import belief_to_arviz

        return belief_to_arviz(self, as_key(key), as_count("num_draws", num_draws, maximum=10**7))


class Path(eqx.Module):
    """One sampled future of every arm, ready to be asked."""

    belief: Belief
    rewards: Float[Array, "K N"]

    def means(self) -> Float[Array, "K N+1"]:
        return self.belief.path_means(self.rewards)

    def expected_max(self, lam: Float[Array, " K"]) -> Float[Array, "K N+1"]:
        return self.belief.path_expected_max(self.rewards, lam)


_FINE = 0


def examined(before: Belief, after: Belief) -> Int[Array, ""]:
    """0 where a belief after an update needs nothing, 1 where it is to be settled; traceable."""
    return (~_finite(before, after) | after.wants_care()).astype(jnp.int32)


def _finite(before: Belief, after: Belief) -> Bool[Array, ""]:
    """Whether every number that was finite still is, and numbers of the belief have finite squares.

    Log-weights may become minus infinity, for points that the data rule out, but not all of them.
    """
    old = dict(jax.tree_util.tree_leaves_with_path(before))
    ok = jnp.asarray(True)
    for path, leaf in jax.tree_util.tree_leaves_with_path(after):
        if not eqx.is_inexact_array(leaf):
            continue
        if getattr(path[-1], "name", "") == "log_weights":
            ok &= jnp.all(jnp.isfinite(jnp.max(leaf, axis=-1)) & ~jnp.any(jnp.isnan(leaf), axis=-1))
        else:
            most = _most(path, leaf.dtype)
            ok &= jnp.all((jnp.abs(leaf) <= most) | ~(jnp.abs(old[path]) <= most))
    return ok


def _most(path: tuple[Any, ...], dtype: Any) -> float:
    """The largest number allowed in a field; latents are the model's own business."""
    latent = any(getattr(key, "name", "") == "params" for key in path)
    return float(jnp.finfo(dtype).max) ** (1 if latent else 0.5)


_is_finite = eqx.filter_jit(_finite)


def _shown(values: np.ndarray) -> str:
    """A number, or what a long list of them spans."""
    if values.size <= 8:
        return str(values.tolist())
    return f"{values.size} numbers from {values.min():g} to {values.max():g}"


# Jitted at module level: a loop of updates compiles once per belief type and shape.
@eqx.filter_jit
def _update_one(belief: Belief, arm: Array, reward: Array) -> tuple[Belief, Array]:
    updated = belief._update(arm, reward)
    return updated, examined(belief, updated)


@eqx.filter_jit
def _update_many(belief: Belief, arms: Array, rewards: Array) -> tuple[Belief, Array]:
    dynamic, static = eqx.partition(belief, eqx.is_array)

    def step(dynamic: Any, pull: tuple[Array, Array]) -> tuple[Any, None]:
        updated = eqx.combine(dynamic, static)._update(*pull)
        return eqx.filter(updated, eqx.is_array), None

    dynamic, _ = jax.lax.scan(step, dynamic, (arms, rewards))
    updated = eqx.combine(dynamic, static)
    return updated, examined(belief, updated)
