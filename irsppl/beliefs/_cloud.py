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
from irsppl.beliefs._abilities import Upkeep
from irsppl.beliefs._points import PointBelief
from irsppl.beliefs._subclouds import standard_error, warn_poor
from irsppl.outcomes import Outcome


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

    def wants_care(self) -> Bool[Array, ""]:
        return jnp.any(self.poor) & ~self.warned

    def tended(self) -> Self:
        """Warned about, once in the life of a belief and its successors, where errors are large."""
        poor = np.flatnonzero(np.asarray(self.poor))
        if not len(poor) or bool(self.warned):
            return self
        ess = np.broadcast_to(np.asarray(self.effective_sample_size()), (self.num_arms,))
        error, sd = np.asarray(self.mean_error()), np.asarray(self.mean_sd())
        warn_poor(poor.tolist(), ess, error, sd, self.num_points)
        return eqx.tree_at(lambda b: b.warned, self, jnp.asarray(True))

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
