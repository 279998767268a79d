"""OGI: the optimistic Gittins index with one step of look-ahead."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from irsppl.bandit import Bandit
from irsppl.inner.single_arm import largest_worth
from irsppl.policies._base import Policy
from irsppl.policies.bayes_ucb import at_each_arm, room


class OGI(Policy):
    """The arm with the largest lam that solves lam = (1 - g) m + g E[max(mu, lam)], g = 1 - 1/t.

    Farias and Gutin (2022), "Optimistic Gittins indices": in the stopping problem that defines
    the Gittins index, with discount g, the arm's true mean is revealed after one pull. Written
    without g: lam - m = (t - 1) E[(mu - lam)^+]. In the first period g = 0: the myopic arm.
    """

    name: ClassVar[str] = "ogi"
    deterministic: ClassVar[bool] = True

    def __call__(self, key: Array, bandit: Bandit) -> Array:
        return jnp.argmax(self.indices(bandit))

    def indices(self, bandit: Bandit) -> Float[Array, " K"]:
        """The index of each arm in this period."""
        belief = bandit.belief
        mean = belief.predictive_mean()
        weight = bandit.period.astype(mean.dtype)  # t - 1
        expected_max = at_each_arm(belief, belief.expected_max)

        def worth(lam: Array) -> Array:
            return weight * (expected_max(lam) - lam) - (lam - mean)

        found = largest_worth(worth, mean, mean + room(mean, 4 * belief.mean_sd()))
        return jnp.where(weight > 0, found, mean)
