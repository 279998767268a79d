"""Gaussian rewards with unknown mean and variance, normal-inverse-gamma prior."""

from __future__ import annotations

from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc, gammaln
from jaxtyping import Array, Float

from irsppl._checks import host64, is_concrete, require, require_finite, require_positive, same_arms
from irsppl._fields import changed
from irsppl.beliefs._abilities import ExactLaws, NormalScores, PathVariances
from irsppl.beliefs._conjugate import (
    Conjugate,
    ConjugateFuture,
    host_sums,
    path_sums,
    per_arm,
    per_arm_keys,
)
from irsppl.inner.arrays import Floats
from irsppl.inner.laws import Continuous, point


class NormalInverseGamma(Conjugate, ExactLaws, NormalScores, PathVariances):
    """reward ~ N(mu, sigma^2), mu ~ N(mean, sigma^2 / precision), 1 / sigma^2 ~ Gamma(shape, rate).

    The mean's marginal law is Student t with 2 shape degrees of freedom, so shape > 1/2 is needed
    for a finite mean.
    """

    mean: Float[Array, " K"]
    precision: Float[Array, " K"]
    shape: Float[Array, " K"]
    rate: Float[Array, " K"]

    def __init__(self, mean: Any, precision: Any, shape: Any, rate: Any):
        self.mean, self.precision, self.shape, self.rate = same_arms(
            mean=mean, precision=precision, shape=shape, rate=rate
        )
        require_finite("mean", self.mean)
        require_positive("precision", self.precision)
        require_positive("shape", self.shape)
        require_positive("rate", self.rate)
        if is_concrete(self.shape):
            require("shape", self.shape, np.asarray(self.shape) > 0.5, "greater than 1/2")

    @property
    def nu(self) -> Array:
        return self.precision

    @property
    def xi(self) -> Array:
        return self.mean * self.precision

    def predictive_mean(self) -> Array:
        return self.mean

    def check_reward(self, arm: Any, reward: Any) -> None:
        require_finite("reward", reward)

    def given(self, arm: Array, reward: Array) -> Self:
        kappa, deviation = self.precision[arm], reward - self.mean[arm]
        return changed(
            self,
            mean=self.mean.at[arm].add(deviation / (kappa + 1)),
            precision=self.precision.at[arm].add(1),
            shape=self.shape.at[arm].add(0.5),
            rate=self.rate.at[arm].add(0.5 * kappa * deviation**2 / (kappa + 1)),
        )

    def posteriors_along(self, rewards: Array) -> Self:
        # Sums of deviations from the prior mean, so that squares do not cancel in float32.
        deviations = rewards.astype(self.mean.dtype) - self.mean[:, None]
        first, second = path_sums(deviations), path_sums(deviations**2)
        n = jnp.arange(rewards.shape[1] + 1, dtype=self.mean.dtype)[None, :]
        kappa = self.precision[:, None] + n
        return changed(
            self,
            mean=self.mean[:, None] + first / kappa,
            precision=kappa,
            shape=self.shape[:, None] + n / 2,
            rate=self.rate[:, None] + 0.5 * jnp.maximum(second - first**2 / kappa, 0),
        )

    def _path_means(self, rewards: Array) -> Array:
        return self.posteriors_along(rewards).mean

    def sample_parameters(self, key: Array) -> tuple[Array, tuple[Array, Array]]:
        keys = per_arm_keys(key, self.num_arms)

        def draw(arm_key: Array, mean: Array, kappa: Array, shape: Array, rate: Array) -> Any:
            variance_key, mean_key = jax.random.split(arm_key)
            sd = jnp.sqrt(rate / jax.random.gamma(variance_key, shape))
            normal = jax.random.normal(mean_key, (), mean.dtype)
            return mean + sd / jnp.sqrt(kappa) * normal, sd

        means, sds = jax.vmap(draw)(keys, self.mean, self.precision, self.shape, self.rate)
        return means, (means, sds)

    def sample_rewards(self, key: Array, parameters: Any, horizon: int) -> Array:
        means, sds = parameters
        noise = per_arm(jax.random.normal, key, self.num_arms, (horizon,), means.dtype)
        return means[:, None] + sds[:, None] * noise

    def sample_sum(self, key: Array, parameters: Any, n: Array) -> Array:
        means, sds = parameters
        n = n.astype(means.dtype)
        return n * means + jnp.sqrt(n) * sds * jax.random.normal(key, means.shape, means.dtype)

    def sample_rewards_at(self, key: Array, means: Array, horizon: int) -> Array:
        # The variance is still unknown: draw it given the mean.
        means = jnp.asarray(means, self.mean.dtype)
        variance_key, reward_key = jax.random.split(key)
        rate = self.rate + 0.5 * self.precision * (means - self.mean) ** 2
        sds = jnp.sqrt(rate / jax.random.gamma(variance_key, self.shape + 0.5))
        return self.sample_rewards(reward_key, (means, sds), horizon)

    def _scale(self) -> Array:
        return jnp.sqrt(self.rate / (self.shape * self.precision))

    def mean_sd(self) -> Array:
        return self._scale() / jnp.sqrt(jnp.maximum(1 - 1 / self.shape, 0.1))

    def stated_sd(self) -> Array:
        return self._scale() / jnp.sqrt(jnp.maximum(1 - 1 / self.shape, 0))

    def path_sds(self, rewards: Floats, means: Floats, worth: Floats) -> Floats:
        apart, n = rewards - means[:, :, :1], np.arange(means.shape[2])[None, None, :]
        spread = host_sums(apart**2) - host_sums(apart) ** 2 / worth
        rate = host64(self.rate)[None, :, None] + 0.5 * np.maximum(spread, 0)
        shape = np.maximum(host64(self.shape)[None, :, None] + n / 2 - 1, 0.5)
        return np.sqrt(rate / shape / worth)

    def normal_scores(self, rewards: Floats, means: Floats, worth: Floats) -> Floats:
        from scipy.special import ndtri, stdtr

        apart, n = rewards - means, np.arange(rewards.shape[2])[None, None, :]
        shape = host64(self.shape)[None, :, None] + n / 2
        spread = apart**2 * worth / (worth + 1) / 2
        rate = host64(self.rate)[None, :, None] + host_sums(spread)[:, :, :-1]
        t = np.abs(apart) / np.sqrt(rate / shape * (1 + 1 / worth))
        return -np.sign(apart) * ndtri(stdtr(2 * shape, -t))

    def along_centred(self, rewards: Array) -> tuple[ConjugateFuture, Array]:
        level = jnp.max(self.mean)
        return changed(self, mean=self.mean - level).along(rewards - level), level

    def _mean_range(self) -> tuple[Array, Array]:
        reach = 8 * self._scale() * (1 + 4 / self.shape)
        return jnp.min(self.mean - reach), jnp.max(self.mean + reach)

    def _cdf(self, x: Array) -> Array:
        return _student_cdf((x - self.mean) / self._scale(), 2 * self.shape)

    def _beyond(self, high: Array) -> Array:
        freedom, scale = 2 * self.shape, self._scale()
        z = (high - self.mean) / scale
        log_density = (
            gammaln((freedom + 1) / 2)
            - gammaln(freedom / 2)
            - 0.5 * jnp.log(freedom * jnp.pi)
            - (freedom + 1) / 2 * jnp.log1p(z**2 / freedom)
        )
        tail = (freedom + z**2) / (freedom - 1) * jnp.exp(log_density)
        return scale * (tail - z * _student_cdf(-z, freedom))

    def _expected_max(self, lam: Array) -> Array:
        return lam + self._beyond(lam)

    def law(self, n: int | None) -> list[Any]:
        mean, kappa, a, b = map(host64, (self.mean, self.precision, self.shape, self.rate))
        if n == 0:
            return [point(m) for m in mean]
        share = 1.0 if n is None else n / (kappa + n)
        each = zip(2 * a, mean, np.sqrt(share * b / (a * kappa)), strict=True)
        return [Continuous("t", (df,), m, s) for df, m, s in each]

    def natural_state(self) -> tuple[np.ndarray, np.ndarray]:
        nu = host64(self.precision)
        return host64(self.mean) * nu, nu


def _student_cdf(z: Array, freedom: Array) -> Array:
    tail = 0.5 * betainc(freedom / 2, jnp.full_like(z, 0.5), freedom / (freedom + z**2))
    return jnp.where(z > 0, 1 - tail, tail)
