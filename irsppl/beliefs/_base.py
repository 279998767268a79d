"""The contract of a belief, documented once.

A belief is an immutable pytree over all K arms. Everything downstream asks it only the questions
below, so that a new representation is one file. Arrays are `[K]` over arms; `N` is a number of
sampled rewards per arm, and `_future.py` says what those teach.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from irsppl._checks import MOST_PERIODS, as_count, as_key, as_numbers, is_concrete, require_range
from irsppl.beliefs._abilities import Upkeep
from irsppl.beliefs._future import Future
from irsppl.outcomes import Outcome


class Belief(eqx.Module):
    """What is believed of K arms.

    A new representation writes the nine abstract members; what follows them has defaults, and what
    only some beliefs can do is a class in `_abilities.py`.
    """

    # Of the rewards' own family, for confidence bounds (`policies.kl_ucb`); None: not known.
    divergence: ClassVar[str | None] = None

    @property
    @abc.abstractmethod
    def num_arms(self) -> int:
        """K."""

    @abc.abstractmethod
    def predictive_mean(self) -> Float[Array, " K"]:
        """Mean reward of the next pull of each arm."""

    @abc.abstractmethod
    def given(self, arm: Array, reward: Array) -> Belief:
        """The posterior after one reward (scalars, maybe traced): `update` without checks."""

    @abc.abstractmethod
    def draw(self, key: Array, horizon: int) -> Outcome:
        """A future with `horizon` rewards per arm; parameters and rewards from separate keys."""

    @abc.abstractmethod
    def along(self, rewards: Float[Array, "K N"]) -> Future:
        """What these rewards would teach: posterior means at any counts of them, and more."""

    def along_centred(self, rewards: Float[Array, "K N"]) -> tuple[Future, ArrayLike]:
        """The same with a number taken off all means, where arms can be so moved, and the number.

        What arms differ by is lost in single precision beside a large level that they share. The
        number is one of the means: compilers may round a computed one in two ways.
        """
        return self.along(rewards), 0.0

    # ---- of the unknown means
    @abc.abstractmethod
    def sample_means(self, key: Array) -> Float[Array, " K"]:
        """One draw of the arms' mean rewards."""

    @abc.abstractmethod
    def expected_max(self, lam: Any) -> Float[Array, " K"]:
        """E[max(mu_a, lam)]."""

    @abc.abstractmethod
    def cdf(self, x: Any) -> Float[Array, " K"]:
        """P(mu_a <= x)."""

    @abc.abstractmethod
    def mean_sd(self) -> Float[Array, " K"]:
        """A scale for mu_a: its standard deviation, unless that is infinite or nearly so."""

    # ---- with defaults
    def stated_sd(self) -> Float[Array, " K"]:
        """The standard deviation of mu_a, infinity included, for people to read."""
        return self.mean_sd()

    @property
    def is_independent(self) -> bool:
        """Whether a reward of one arm tells nothing of the others."""
        return True

    def noted(self, arm: Array, reward: Array) -> Belief:
        """`given` without upkeep that a program of its own does: where `settled` comes next."""
        return self.given(arm, reward)

    def sample_future_means(self, key: Array, n: Array, horizon: int) -> Float[Array, " K"]:
        """One draw of the posterior means after n more rewards of every arm.

        n may be traced, a number or one per arm `[K]`, and is at most `horizon`.
        """
        return self.along(self.draw(key, horizon).rewards).means(n)

    def draw_truth(self, key: Array, horizon: int) -> Outcome:
        """A future for bounds and simulations, drawn from the prior that the user wrote.

        Beliefs that approximate (particles) sample here from the model itself, together with the
        set in which the bound's posterior means are then computed.
        """
        return self.draw(key, horizon)

    def sample_rewards_at(self, key: Array, means: Array, horizon: int) -> Float[Array, "K N"]:
        """Rewards when the arms' true means are known (a fixed truth)."""
        raise ValueError(
            f"means= cannot be used with {type(self).__name__}: a mean does not determine the "
            "reward distribution there"
        )

    def footprint(self, horizon: int) -> int:
        """Numbers that one future takes while it is worked on; it sizes chunks of futures."""
        return self.num_arms * horizon

    def reward_range(self) -> tuple[Any, Any] | None:
        """The least and the largest reward, where rewards are bounded and it is known by what."""
        return None

    def reward_scale(self) -> Any:
        """s of rewards that are s-sub-Gaussian, a number or one per arm; None: not known."""
        ends = self.reward_range()
        return None if ends is None else (ends[1] - ends[0]) / 2

    def check_reward(self, arm: Any, reward: Any) -> None:
        """Raise `ValueError` if a concrete reward is outside the support."""

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
        count = int(np.prod(rewards, dtype=int))
        ready: Any = self.with_room(count) if isinstance(self, Upkeep) else self
        updated, state = ready.learnt(jnp.asarray(arm), numbers)
        return ready.settled(updated, state, arm, reward)

    def learnt(self, arm: Array, reward: Array) -> tuple[Belief, Array]:
        """After one reward, or an array of them, and what `examined` says of that."""
        return (_update_many if arm.ndim else _update_one)(self, arm, reward)

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
        if isinstance(updated, Upkeep):
            updated = updated.tended(self)
        if not bool(_is_finite(self, updated)):
            raise ValueError(
                f"reward {_shown(np.asarray(reward))} of arm {_shown(np.asarray(arm))} is refused "
                f"and the belief left as it was: {self._why_not_finite()}"
            )
        return updated

    def sample_outcome(self, key: Any, horizon: int) -> Outcome:
        """A future drawn from the belief: `.means [K]`, `.rewards [K, horizon]`."""
        return self.draw(as_key(key), as_count("horizon", horizon, maximum=MOST_PERIODS))

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


_FINE = 0


def examined(before: Belief, after: Belief) -> Int[Array, ""]:
    """0 where a belief after an update needs nothing, 1 where it is to be settled; traceable."""
    care = after.wants_care() if isinstance(after, Upkeep) else False
    return (~_finite(before, after) | care).astype(jnp.int32)


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


@eqx.filter_jit
def single_pulls(belief: Belief, keys: Array) -> Outcome:
    """Futures of one reward per arm, one for each key."""
    return jax.vmap(lambda key: belief.draw(key, 1))(keys)


# Jitted at module level: a loop of updates compiles once per belief type and shape.
@eqx.filter_jit
def _update_one(belief: Belief, arm: Array, reward: Array) -> tuple[Belief, Array]:
    updated = belief.given(arm, reward)
    return updated, examined(belief, updated)


@eqx.filter_jit
def _update_many(belief: Belief, arms: Array, rewards: Array) -> tuple[Belief, Array]:
    dynamic, static = eqx.partition(belief, eqx.is_array)

    def step(dynamic: Any, pull: tuple[Array, Array]) -> tuple[Any, None]:
        updated = eqx.combine(dynamic, static).given(*pull)
        return eqx.filter(updated, eqx.is_array), None

    dynamic, _ = jax.lax.scan(step, dynamic, (arms, rewards))
    updated = eqx.combine(dynamic, static)
    return updated, examined(belief, updated)
