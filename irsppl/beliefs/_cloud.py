"""What particles of independent and of correlated arms share: a record, and what they are worth."""

import abc
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

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

    moving: eqx.AbstractVar[bool]  # whether points move, or are only reweighted
    seen: eqx.AbstractVar[Array]  # rewards so far
    rewards: eqx.AbstractVar[Array]
    part: eqx.AbstractVar[Array]
    rejuvenations: eqx.AbstractVar[Array]
    inflation: eqx.AbstractVar[Array]
    poor: eqx.AbstractVar[Array]
    warned: eqx.AbstractVar[Array]

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

    def mean_error(self) -> Float[Array, " K"]:
        """Estimated standard error of the predictive means as Monte Carlo sums over the cloud.

        The larger of what the effective sample size implies and what the sub-clouds disagree by;
        plus or minus two of them covers 95 %. Infinite for a cloud that has collapsed.
        """
        return _mean_errors(self)

    def __repr__(self) -> str:
        concrete = isinstance(self.seen, (np.ndarray, jax.Array)) and is_concrete(self.seen)
        if not concrete or not self.moving or not np.any(np.asarray(self.seen)):
            return super().__repr__()
        ess, moves = np.asarray(self.effective_sample_size()), np.asarray(self.rejuvenations)
        return (
            f"{super().__repr__()}; effective sample size {ess.min():.0f} at least, "
            f"{int(moves.sum())} rejuvenations"
        )


@eqx.filter_jit
def _mean_errors(belief: Cloud) -> Float[Array, " K"]:
    ess = belief.effective_sample_size()
    if not belief.is_independent:
        return standard_error(belief.mu, belief.weights, belief.part, ess)
    each = jax.vmap(lambda mu, w, part, ess: standard_error(mu[:, None], w, part, ess)[0])
    return each(belief.mu, belief.weights, belief.part, ess)
