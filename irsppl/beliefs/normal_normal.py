"""Gaussian rewards with known noise, Gaussian prior."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from irsppl._checks import host64, require_finite, require_positive, same_arms
from irsppl._fields import changed
from irsppl.beliefs._abilities import ExactLaws, InKernels, NormalScores
from irsppl.beliefs._conjugate import Conjugate, ConjugateFuture, path_sums, per_arm
from irsppl.inner.arrays import Floats
from irsppl.inner.laws import Continuous, point


class NormalNormal(Conjugate, ExactLaws, InKernels, NormalScores):
    """reward ~ Normal(mu, noise_sd), mu ~ Normal(mean, sd); the noise is known, and may differ."""

    divergence: ClassVar[str] = "gaussian"

    mean: Float[Array, " K"]
    sd: Float[Array, " K"]
    noise_sd: Float[Array, " K"]

    def __init__(self, mean: Any, sd: Any, noise_sd: Any):
        self.mean, self.sd, self.noise_sd = same_arms(mean=mean, sd=sd, noise_sd=noise_sd)
        require_finite("mean", self.mean)
        require_positive("sd", self.sd)
        require_positive("noise_sd", self.noise_sd)

    @property
    def num_arms(self) -> int:
        return self.mean.shape[0]

    @property
    def nu(self) -> Array:
        return (self.noise_sd / self.sd) ** 2

    @property
    def xi(self) -> Array:
        return self.mean * self.nu

    def predictive_mean(self) -> Array:
        return self.mean

    def reward_scale(self) -> Array:
        return self.noise_sd

    def normal_scores(self, rewards: Floats, means: Floats, worth: Floats) -> Floats:
        return (rewards - means) / (host64(self.noise_sd)[None, :, None] * np.sqrt(1 + 1 / worth))

    def check_reward(self, arm: Any, reward: Any) -> None:
        require_finite("reward", reward)

    def given(self, arm: Array, reward: Array) -> Self:
        nu, mean, sd = self.nu[arm], self.mean[arm], self.sd[arm]
        gain = 1 / (nu + 1)
        return changed(
            self,
            mean=self.mean.at[arm].set(mean + gain * (reward - mean)),
            sd=self.sd.at[arm].set(sd * jnp.sqrt(nu / (nu + 1))),
        )

    def posteriors_along(self, rewards: Array) -> Self:
        nu = self.nu[:, None]
        n = jnp.arange(rewards.shape[1] + 1, dtype=nu.dtype)[None, :]
        # Sums of deviations from the prior mean: no cancellation when the mean is far from 0.
        deviations = path_sums(rewards.astype(nu.dtype) - self.mean[:, None])
        return changed(
            self,
            mean=self.mean[:, None] + deviations / (nu + n),
            sd=self.sd[:, None] * jnp.sqrt(nu / (nu + n)),
            noise_sd=jnp.broadcast_to(self.noise_sd[:, None], deviations.shape),
        )

    def _path_means(self, rewards: Array) -> Array:
        return self.posteriors_along(rewards).mean

    def sample_parameters(self, key: Array) -> tuple[Array, Array]:
        normals = per_arm(jax.random.normal, key, self.num_arms, (), self.mean.dtype)
        means = self.mean + self.sd * normals
        return means, means

    def sample_rewards(self, key: Array, parameters: Array, horizon: int) -> Array:
        noise = per_arm(jax.random.normal, key, self.num_arms, (horizon,), parameters.dtype)
        return parameters[:, None] + self.noise_sd[:, None] * noise

    def sample_sum(self, key: Array, parameters: Array, n: Array) -> Array:
        normals = jax.random.normal(key, parameters.shape, parameters.dtype)
        n = n.astype(parameters.dtype)
        return n * parameters + jnp.sqrt(n) * self.noise_sd * normals

    def sample_rewards_at(self, key: Array, means: Array, horizon: int) -> Array:
        return self.sample_rewards(key, jnp.asarray(means, self.mean.dtype), horizon)

    def mean_sd(self) -> Array:
        return self.sd

    def along_centred(self, rewards: Array) -> tuple[ConjugateFuture, Array]:
        level = jnp.max(self.mean)
        return changed(self, mean=self.mean - level).along(rewards - level), level

    def _mean_range(self) -> tuple[Array, Array]:
        return jnp.min(self.mean - 8 * self.sd), jnp.max(self.mean + 8 * self.sd)

    def _cdf(self, x: Array) -> Array:
        return norm.cdf((x - self.mean) / self.sd)

    def _expected_max(self, lam: Array) -> Array:
        z = (lam - self.mean) / self.sd
        return self.mean + (lam - self.mean) * norm.cdf(z) + self.sd * norm.pdf(z)

    def _path_expected_best(self, rewards: Array) -> Array:
        if self.num_arms != 2:
            return super()._path_expected_best(rewards)
        # Two Gaussians: E max = m1 Phi(d/s) + m2 Phi(-d/s) + s phi(d/s).
        path = self.posteriors_along(rewards)
        first, second = path.mean[0][:, None], path.mean[1][None, :]
        sd = jnp.sqrt(path.sd[0][:, None] ** 2 + path.sd[1][None, :] ** 2)
        z = (first - second) / sd
        return second + (first - second) * norm.cdf(z) + sd * norm.pdf(z)

    def law(self, n: int | None) -> list[Any]:
        mean, sd, noise = host64(self.mean), host64(self.sd), host64(self.noise_sd)
        if n == 0:
            return [point(m) for m in mean]
        nu = (noise / sd) ** 2
        share = 1.0 if n is None else n / (nu + n)  # of the prior variance that n rewards resolve
        return [
            Continuous("norm", (), m, s) for m, s in zip(mean, sd * np.sqrt(share), strict=True)
        ]

    def kernel_state(self) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
        xi, nu = self.natural_state()
        return 1, xi, nu, host64(self.noise_sd)

    def natural_state(self) -> tuple[np.ndarray, np.ndarray]:
        nu = (host64(self.noise_sd) / host64(self.sd)) ** 2
        return host64(self.mean) * nu, nu
