"""KL-UCB: upper confidence bounds by the divergence of the rewards' own family."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.special import xlogy
from jaxtyping import Array, Float

from irsppl._checks import one_of
from irsppl.bandit import Bandit
from irsppl.inner.single_arm import largest_worth
from irsppl.policies._base import Policy
from irsppl.policies.bayes_ucb import room
from irsppl.policies.ucb1 import as_scale, observed, reward_scale, untried_first

# d(p, q) between rewards of means p and q >= p. Gaussian rewards have a closed form instead.
_DIVERGENCES: dict[str, Callable[[Array, Array], Array]] = {
    "bernoulli": lambda p, q: xlogy(p, p / q) + xlogy(1 - p, (1 - p) / (1 - q)),
    "poisson": lambda p, q: q - p + xlogy(p, p / q),
    "exponential": lambda p, q: p / q - 1 - jnp.log(p / q),
}
# In the order of the families of compiled kernels.
DIVERGENCES = ("bernoulli", "gaussian", "poisson", "exponential")


class KLUCB(Policy):
    """The largest q with n d(estimated mean, q) <= log t (Garivier and Cappe, 2011; c = 0).

    divergence: "bernoulli" (also right for any rewards in [0, 1]), "gaussian" (with `scale`, the
    noise), "poisson" or "exponential"; by default that of the belief's own rewards, with
    categorical ones mapped to [0, 1]. Every arm is first pulled once; see `ucb1.observed` for what
    "estimated" means.
    """

    name: ClassVar[str] = "kl-ucb"
    deterministic: ClassVar[bool] = True
    divergence: str | None = eqx.field(static=True)
    scale: float | None = eqx.field(static=True)

    def __init__(self, divergence: str | None = None, scale: float | None = None):
        if divergence is not None:
            one_of("divergence", divergence, DIVERGENCES)
        self.divergence = divergence
        self.scale = as_scale(scale)
        if self.scale is not None and divergence not in (None, "gaussian"):
            raise ValueError(f"scale is the noise of Gaussian rewards, not of {divergence} ones")

    def check(self, bandit: Bandit) -> None:
        if self._family(bandit) == "gaussian":
            reward_scale(bandit, self.scale, "KLUCB")

    def __call__(self, key: Array, bandit: Bandit) -> Array:
        return jnp.argmax(self.indices(bandit))

    def indices(self, bandit: Bandit) -> Float[Array, " K"]:
        """The upper confidence bound of each arm; while some arms are untried, theirs alone."""
        mean, count, untried = observed(bandit)
        budget = jnp.log((bandit.period + 1).astype(mean.dtype)) / count
        family, scale, low, unit = self.reading(bandit)
        if family == "gaussian":
            return untried_first(mean, untried, mean + scale * jnp.sqrt(2 * budget))
        return untried_first(mean, untried, low + unit * upper(family, (mean - low) / unit, budget))

    def reading(self, bandit: Bandit) -> tuple[str, Float[Array, " K"], Array, Array]:
        """(divergence, Gaussian noise, low, unit): means are mapped by (m - low) / unit."""
        family = self._family(bandit)
        mean = bandit.belief.predictive_mean()
        scale, low, unit = jnp.zeros_like(mean), jnp.zeros((), mean.dtype), jnp.ones((), mean.dtype)
        if family == "gaussian":
            scale = reward_scale(bandit, self.scale, "KLUCB")
        elif self.divergence is None and (ends := bandit.belief.reward_range()) is not None:
            low, high = (jnp.asarray(end, mean.dtype) for end in ends)
            unit = high - low
        return family, scale, low, unit

    def _family(self, bandit: Bandit) -> str:
        if self.divergence is not None:
            return self.divergence
        found = "gaussian" if self.scale is not None else bandit.belief.divergence
        if found is None:
            raise ValueError(
                "kl-ucb does not know the rewards' divergence for "
                f"{type(bandit.belief).__name__}: give one, KLUCB(divergence=...), or use "
                "'bayes-ucb'"
            )
        return found


def upper(family: str, mean: Float[Array, " K"], budget: Float[Array, " K"]) -> Float[Array, " K"]:
    """Largest q with d(mean, q) <= budget; any family but the Gaussian one."""
    divergence = _DIVERGENCES[family]
    # Beyond the support the divergence is not a number, which counts as too far.
    start = mean + room(mean, jnp.sqrt(budget / 2))
    return largest_worth(lambda q: budget - divergence(mean, q), mean, start)
