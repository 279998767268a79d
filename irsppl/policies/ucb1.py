"""UCB1, and what the rules that know no prior share."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from irsppl.bandit import Bandit
from irsppl.policies._base import Policy


class UCB1(Policy):
    """Estimated mean + 2 s sqrt(2 log(t - 1) / n) for rewards that are s-sub-Gaussian.

    With s = 1/2, that of rewards in [0, 1], the formula of Auer, Cesa-Bianchi and Fischer (2002).
    scale: s; by default half the range of bounded rewards (Bernoulli, categorical) or the known
    noise of Gaussian ones. Every arm is first pulled once; see `observed` for what "estimated"
    means.
    """

    name: ClassVar[str] = "ucb1"
    deterministic: ClassVar[bool] = True
    scale: float | None = eqx.field(static=True)

    def __init__(self, scale: float | None = None):
        self.scale = as_scale(scale)

    def check(self, bandit: Bandit) -> None:
        reward_scale(bandit, self.scale)

    def __call__(self, key: Array, bandit: Bandit) -> Array:
        return jnp.argmax(self.indices(bandit))

    def indices(self, bandit: Bandit) -> Float[Array, " K"]:
        """The upper confidence bound of each arm; while some arms are untried, theirs alone."""
        mean, count, untried = observed(bandit)
        so_far = jnp.maximum(bandit.period, 1).astype(mean.dtype)  # Auer et al.: plays done so far
        width = 2 * reward_scale(bandit, self.scale) * jnp.sqrt(2 * jnp.log(so_far) / count)
        return untried_first(mean, untried, mean + width)


# ---- shared by the rules that know no prior


def observed(bandit: Bandit) -> tuple[Float[Array, " K"], Float[Array, " K"], Bool[Array, " K"]]:
    """(estimated mean, rewards seen but at least 1, never pulled) of each arm.

    A bandit carries what is believed, not the sums of what was earned, so the estimate is the
    predictive mean: the average of the rewards *and* of the prior's pseudo-observations, (sum +
    m0 nu0) / (n + nu0). The counts are those of real rewards, so the prior shrinks the estimates
    of rarely pulled arms and does nothing else.
    """
    mean = bandit.belief.predictive_mean()
    pending = bandit.pending_counts
    seen = bandit.counts if pending is None else bandit.counts - pending
    return mean, jnp.maximum(seen, 1).astype(mean.dtype), bandit.counts == 0


def untried_first(mean: Array, untried: Array, index: Array) -> Array:
    """`index`, or while some arms are untried their predictive means alone.

    The order in which arms are tried is free; the likeliest best goes first.
    """
    return jnp.where(jnp.any(untried), jnp.where(untried, mean, -jnp.inf), index)


def as_scale(scale: Any) -> float | None:
    if scale is None:
        return None
    number = isinstance(scale, (int, float)) and not isinstance(scale, bool)
    if not number or not (math.isfinite(scale) and scale > 0):
        raise ValueError(f"scale must be a positive number, got {scale!r}")
    return float(scale)


def reward_scale(bandit: Bandit, given: float | None, rule: str = "UCB1") -> Float[Array, " K"]:
    """A sub-Gaussian scale of each arm's rewards."""
    belief = bandit.belief
    mean = belief.predictive_mean()
    scale = belief.reward_scale() if given is None else given
    if scale is None:
        raise ValueError(
            f"{rule} needs a sub-Gaussian scale of the rewards, and {type(belief).__name__} has "
            f"none that is known: give one, {rule}(scale=...), or use 'bayes-ucb'"
        )
    return jnp.broadcast_to(jnp.asarray(scale, mean.dtype), mean.shape)
