"""Exponential rewards, Gamma prior on the rate."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammainc, gammaincc
from jaxtyping import Array, Float

from irsppl._checks import (
    host64,
    is_concrete,
    require,
    require_positive,
    require_pseudo_counts,
    same_arms,
)
from irsppl.beliefs._abilities import NormalScores, PathVariances
from irsppl.beliefs._conjugate import Natural, per_arm, per_arm_keys
from irsppl.inner.arrays import Floats
from irsppl.inner.laws import Continuous, point


class GammaExponential(Natural, NormalScores, PathVariances):
    """reward ~ Exponential(rate theta), theta ~ Gamma(shape, rate); mean reward 1 / theta.

    The prior mean of 1 / theta is rate / (shape - 1), finite only for shape > 1.
    """

    divergence: ClassVar[str] = "exponential"
    code: ClassVar[int] = 3
    shape: Float[Array, " K"]
    rate: Float[Array, " K"]

    def __init__(self, shape: Any, rate: Any):
        self.shape, self.rate = same_arms(shape=shape, rate=rate)
        if is_concrete(self.shape):
            ok = np.isfinite(self.shape) & (np.asarray(self.shape) > 1)
            valid = "greater than 1 (the mean reward is infinite otherwise)"
            require("shape", self.shape, ok, valid)
        require_pseudo_counts("shape", self.shape)
        require_positive("rate", self.rate)

    @property
    def xi(self) -> Array:
        return self.rate

    @property
    def nu(self) -> Array:
        return self.shape - 1

    def check_reward(self, arm: Any, reward: Any) -> None:
        if is_concrete(reward):
            host = np.asarray(reward)
            if not np.all(np.isfinite(host) & (host >= 0)):
                raise ValueError(
                    f"reward of an exponential arm must be finite and not negative, got {reward!r}"
                )

    def added(self, total: Any, count: Any) -> dict[str, Any]:
        return {"shape": count, "rate": total}

    def sample_parameters(self, key: Array) -> tuple[Array, Array]:
        keys = per_arm_keys(key, self.num_arms)
        theta = jax.vmap(jax.random.gamma)(keys, self.shape) / self.rate
        return 1 / theta, 1 / theta

    def sample_rewards(self, key: Array, parameters: Array, horizon: int) -> Array:
        kind = parameters.dtype
        draws = per_arm(jax.random.exponential, key, self.num_arms, (horizon,), kind)
        return draws * parameters[:, None]

    def sample_sum(self, key: Array, parameters: Array, n: Array) -> Array:
        # Gamma(0) is the sum of no rewards; the sampler needs a positive shape.
        count = jnp.broadcast_to(n.astype(parameters.dtype), parameters.shape)
        draws = jax.random.gamma(key, jnp.maximum(count, 1))
        return jnp.where(count > 0, draws, 0) * parameters

    def mean_sd(self) -> Array:
        # The variance is infinite for shape <= 2; the mean is then the only scale there is.
        mean = self.rate / (self.shape - 1)
        return mean / jnp.sqrt(jnp.maximum(self.shape - 2, 1))

    def stated_sd(self) -> Array:
        return self.rate / (self.shape - 1) / jnp.sqrt(jnp.maximum(self.shape - 2, 0))

    def path_sds(self, rewards: Floats, means: Floats, worth: Floats) -> Floats:
        return means / np.sqrt(np.maximum(worth - 1, 1))  # infinite below: any scale will do

    def normal_scores(self, rewards: Floats, means: Floats, worth: Floats) -> Floats:
        from scipy.special import ndtri, ndtri_exp

        # Lomax: P(r > x) = (rate / (rate + x))^shape
        level = -(worth + 1.0) * np.log1p(rewards / (means * worth))
        # The tail that is small is the one to be turned into a number.
        upper = -ndtri_exp(np.minimum(level, -1e-300))
        return np.where(level < -0.7, upper, ndtri(-np.expm1(level)))

    def _mean_range(self) -> tuple[Array, Array]:
        # 1/theta has a power tail, P(mu > x) ~ (rate / x)^shape / Gamma(shape + 1): see `_beyond`.
        high = jnp.max(self.rate / (self.shape - 1) * (1 + 60 / jnp.sqrt(self.shape)))
        return jnp.zeros_like(high), high

    def _beyond(self, high: Array) -> Array:
        ratio, mean = self.rate / high, self.rate / (self.shape - 1)
        return mean * gammainc(self.shape - 1, ratio) - high * gammainc(self.shape, ratio)

    def _cdf(self, x: Array) -> Array:
        positive = x > 0
        ratio = self.rate / jnp.where(positive, x, 1)
        return jnp.where(positive, gammaincc(self.shape, ratio), 0)

    def _expected_max(self, lam: Array) -> Array:
        positive = lam > 0
        ratio = self.rate / jnp.where(positive, lam, 1)
        mean = self.rate / (self.shape - 1)
        value = mean * gammainc(self.shape - 1, ratio) + lam * gammaincc(self.shape, ratio)
        return jnp.where(positive, value, mean)

    def law(self, n: int | None) -> list[Any]:
        pairs = list(zip(host64(self.shape), host64(self.rate), strict=True))
        if n is None:
            return [Continuous("invgamma", (a,), 0.0, b) for a, b in pairs]
        if n == 0:
            return [point(b / (a - 1)) for a, b in pairs]
        # The sum of n rewards over the prior rate follows a beta prime law (n, shape).
        return [Continuous("betaprime", (n, a), b / (a - 1 + n), b / (a - 1 + n)) for a, b in pairs]

    def natural_state(self) -> tuple[np.ndarray, np.ndarray]:
        return host64(self.rate), host64(self.shape) - 1
