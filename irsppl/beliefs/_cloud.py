"""What particles of independent and of correlated arms share: a record, and what they are worth."""

import abc
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from irsppl._checks import is_concrete
from irsppl._fields import changed
from irsppl._xla_options import filter_jit, lean
from irsppl.beliefs._abilities import Upkeep
from irsppl.beliefs._base import Belief, examined
from irsppl.beliefs._points import PointBelief
from irsppl.beliefs._subclouds import standard_error, warn_poor
from irsppl.outcomes import Outcome

_LEAST_ESS = 0.5  # by weights, of the number of particles; below it the cloud is moved


class Cloud(Upkeep, PointBelief):
    """Points drawn at random from the prior of a model, and moved as rewards come in.

    Each future for bounds brings a fresh set of points, which its truth was drawn from.
    """

    # `...` is the arms `[K]` where each has a cloud of its own, and nothing where they share one.
    rewards: Float[Array, "... B"]  # what has been seen, padded with a possible reward
    seen: Int[Array, "..."]  # rewards so far
    part: Int[Array, "... N"]  # which sub-cloud a point belongs to
    key: Array
    rejuvenations: Int[Array, "..."]  # moves so far
    tempered: Int[Array, "..."]  # rewards so far that took several moves
    acceptance: Float[Array, "..."]  # of the last moves, NaN before the first
    inflation: Float[Array, "..."]  # of the variance of a mean, by copies that moves did not part
    step: Float[Array, "..."]  # of Hamiltonian moves
    poor: Bool[Array, " K"]  # whether the last move left a large error
    warned: Bool[Array, ""]
    moving: bool = eqx.field(static=True)  # whether points move, or are only reweighted

    def _begin(self, step: Any) -> None:
        """Fields of a cloud that has seen nothing; step: as moves start with it."""
        self.step = jnp.asarray(step, self.mu.dtype)
        self.seen = self.rejuvenations = self.tempered = jnp.zeros(self.step.shape, jnp.int32)
        self.acceptance = jnp.full_like(self.step, jnp.nan)
        self.inflation = jnp.ones_like(self.step)
        self.poor = jnp.zeros(self.num_arms, bool)
        self.warned, self.moving = jnp.asarray(False), True

    @abc.abstractmethod
    def moved(self, group: int, arm: Array, before: Array) -> Self:
        """The arm's cloud, or the one that arms share, resampled and moved.

        group: of `parts`, the arm's. before: log-weights of all without the newest reward.
        """

    @abc.abstractmethod
    def fresh(self, key: Array) -> PointBelief:
        """New points, drawn from the prior; they stay where they are."""

    @abc.abstractmethod
    def plain(self) -> PointBelief:
        """The points as they are, without upkeep."""

    def draw_truth(self, key: Array, horizon: int) -> Outcome:
        set_key, chosen_key, reward_key = jax.random.split(key, 3)
        # How far play has come is data, so that one program serves before and after the first pull.
        within = jax.lax.cond(self.at_prior(), lambda: self.fresh(set_key), lambda: self.plain())
        chosen = jax.random.categorical(chosen_key, within.log_weights, axis=-1)
        outcome = within.outcome_at(chosen, reward_key, horizon)
        return eqx.tree_at(lambda o: o.belief, outcome, within, is_leaf=lambda x: x is None)

    @property
    def is_approximate(self) -> bool:
        """Whether bounds computed from this state are: play has left the prior."""
        return not bool(self.at_prior())

    def at_prior(self) -> Bool[Array, ""]:
        """Whether no reward has been seen: data, so that no structure changes at the first."""
        return jnp.sum(self.seen) == 0

    def recorded(self) -> tuple[Any, int]:
        return self.seen, self.rewards.shape[-1]

    def for_simulation(self) -> Self:
        return changed(self, moving=False)

    def in_need(self) -> Bool[Array, "..."]:
        """Clouds whose weights have degenerated: they are to be moved."""
        ess = 1 / jnp.sum(jnp.exp(2 * self.log_weights), axis=-1)
        return (ess < _LEAST_ESS * self.num_points) & self.moving

    def wants_care(self) -> Bool[Array, ""]:
        return jnp.any(self.in_need()) | (jnp.any(self.poor) & ~self.warned)

    def learnt(self, arm: Array, reward: Array) -> tuple[Belief, Array]:
        """Moves are a program of their own, compiled when the first cloud needs it."""
        if not is_concrete(self, arm, reward):
            return super().learnt(arm, reward)
        if not arm.size:
            return self, examined(self, self)
        arms, rewards = jnp.atleast_1d(arm), jnp.atleast_1d(reward)
        belief, done = self, jnp.zeros_like(arms, shape=())
        while True:
            before, belief, needy, state, done = _note_until(belief, arms, rewards, done)
            belief = belief.carried(needy, before)
            if done == len(arms):
                return belief, state

    def carried(self, needy: Array, before: Array) -> Self:
        """With these clouds moved; before: log-weights of all without the newest reward."""
        belief = self
        for arm in np.flatnonzero(np.asarray(needy)):
            group = next(g for g, (_, arms) in enumerate(self.parts) if arm in arms)
            belief = _moved(belief, group, jnp.asarray(arm), before)
        return belief

    def tended(self, before: Self) -> Self:
        """Moved, and warned about, once in the life of a belief and its successors, where errors
        are large."""
        belief = self.carried(_in_need(self), before.log_weights)
        poor = np.flatnonzero(np.asarray(belief.poor))
        if not len(poor) or bool(belief.warned):
            return belief
        ess = np.broadcast_to(np.asarray(belief.effective_sample_size()), (belief.num_arms,))
        error, sd = np.asarray(belief.mean_error()), np.asarray(belief.mean_sd())
        warn_poor(poor.tolist(), ess, error, sd, belief.num_points)
        return eqx.tree_at(lambda b: b.warned, belief, jnp.asarray(True))

    def effective_sample_size(self) -> Float[Array, "..."]:
        """Independent points that the belief (about each arm, where they have their own) is worth.

        1 / sum of squared weights, less what copies that moves did not part are not worth.
        """
        return super().effective_sample_size() / self.inflation

    @eqx.filter_jit
    def mean_error(self) -> Float[Array, " K"]:
        """Estimated standard error of the predictive means as Monte Carlo sums over the cloud.

        The larger of what the effective sample size implies and what the sub-clouds disagree by;
        plus or minus two of them covers 95 %. Infinite for a cloud that has collapsed.
        """
        ess = self.effective_sample_size()
        if not self.is_independent:
            return standard_error(self.mu, self.weights, self.part, ess)
        each = jax.vmap(lambda mu, w, part, ess: standard_error(mu[:, None], w, part, ess)[0])
        return each(self.mu, self.weights, self.part, ess)

    def __repr__(self) -> str:
        concrete = isinstance(self.seen, (np.ndarray, jax.Array)) and is_concrete(self.seen)
        if not concrete or not self.moving or not np.any(np.asarray(self.seen)):
            return super().__repr__()
        ess, moves = np.asarray(self.effective_sample_size()), np.asarray(self.rejuvenations)
        return (
            f"{super().__repr__()}; effective sample size {ess.min():.0f} at least, "
            f"{int(moves.sum())} rejuvenations"
        )


_in_need = eqx.filter_jit(Cloud.in_need)


def _move(belief: Any, group: int, arm: Array, before: Array) -> Any:
    return belief.moved(group, arm, before)


def _moved(*given: Any) -> Any:
    return filter_jit(_move, lean())(*given)


@eqx.filter_jit
def _note_until(
    belief: Any, arms: Int[Array, " n"], rewards: Float[Array, " n"], start: Any
) -> tuple[Array, Any, Array, Array, Array]:
    """Rewards from number `start` on, until a cloud is in need.

    Returns the log-weights before the last of them, the belief, which clouds are in need, what
    `examined` says, and the number of the next reward.
    """
    dynamic, static = eqx.partition(belief, eqx.is_array)

    def note(state: Any) -> Any:
        i, _, now, _ = state
        before = eqx.combine(now, static)
        after = before.noted(arms[i], rewards[i])
        return i + 1, before.log_weights, eqx.filter(after, eqx.is_array), after.in_need()

    first = (jnp.asarray(start), belief.log_weights, dynamic, jnp.zeros_like(belief.in_need()))
    going = lambda state: (state[0] < arms.shape[0]) & ~jnp.any(state[3])  # noqa: E731
    done, before, dynamic, needy = jax.lax.while_loop(going, note, first)
    after = eqx.combine(dynamic, static)
    return before, after, needy, examined(belief, after), done
