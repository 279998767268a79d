"""Bayes-UCB: play the arm whose mean has the largest posterior quantile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri
from jaxtyping import Array, ArrayLike, Float

from irsppl.bandit import Bandit
from irsppl.beliefs import Belief, Conjugate, NormalNormal
from irsppl.inner.single_arm import largest_worth
from irsppl.policies._base import Policy


class BayesUCB(Policy):
    """Quantile 1 - 1/t in period t = 1, 2, ... (Kaufmann, Cappe and Garivier, 2012).

    In the first period the level is 0 and the rule silent: an arm is drawn at random, unless that
    period is also the last, where the myopic arm is best.
    """

    name: ClassVar[str] = "bayes-ucb"

    def settled(self, bandit: Bandit) -> bool:
        return int(bandit.period) > 0 or int(bandit.remaining) == 1

    def __call__(self, key: Array, bandit: Bandit) -> Array:
        first = bandit.period == 0
        index = jnp.where(first, bandit.belief.predictive_mean(), self.indices(bandit))
        drawn = jax.random.randint(key, (), 0, bandit.num_arms)
        return jnp.where(first & (bandit.remaining > 1), drawn, jnp.argmax(index))

    def indices(self, bandit: Bandit) -> Float[Array, " K"]:
        """The quantile of each arm's mean in this period."""
        mean = bandit.belief.predictive_mean()
        # Level 0 has no quantile; what stands in for it in the first period is not looked at.
        t = jnp.maximum(bandit.period + 1, 2).astype(mean.dtype)
        return quantiles(bandit.belief, 1 - 1 / t)


# ---- shared by the rivals


def quantiles(belief: Belief, level: ArrayLike) -> Float[Array, " K"]:
    """Smallest x with P(mu_a <= x) >= level for each arm, 0 < level < 1."""
    mean, sd = belief.predictive_mean(), belief.mean_sd()
    if isinstance(belief, NormalNormal):
        return mean + sd * ndtri(jnp.asarray(level, mean.dtype))
    below = at_each_arm(belief, belief.cdf)
    return largest_worth(
        lambda x: jnp.where(below(x) < level, 1, -1), mean - sd, mean + room(mean, 4 * sd)
    )


def at_each_arm(
    belief: Belief, ask: Callable[[Any], Array]
) -> Callable[[Float[Array, " K"]], Float[Array, " K"]]:
    """`ask(x) -> [K]`, for one x, as a function of one x per arm."""
    if isinstance(belief, Conjugate):
        return ask  # elementwise already
    return lambda x: jnp.diagonal(jax.vmap(ask)(x))


def room(mean: Array, width: Array) -> Array:
    """`width`, but positive: a search may not start from an empty interval (a belief that has
    collapsed to a point has no width)."""
    return jnp.maximum(width, 1e-3 * (1 + jnp.abs(mean)))
