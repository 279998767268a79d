"""Poisson rewards, Gamma prior."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammainc
from jaxtyping import Array, Float

from irsppl._checks import host64, is_concrete, require_positive, require_pseudo_counts, same_arms
from irsppl.beliefs._abilities import PathVariances
from irsppl.beliefs._conjugate import Natural, per_arm_keys
from irsppl.inner.arrays import Floats
from irsppl.inner.laws import Continuous, Discrete, point


class GammaPoisson(Natural, PathVariances):
    """reward ~ Poisson(theta), theta ~ Gamma(shape, rate)."""

    divergence: ClassVar[str] = "poisson"
    code: ClassVar[int] = 2
    shape: Float[Array, " K"]
    rate: Float[Array, " K"]

    def __init__(self, shape: Any, rate: Any):
        self.shape, self.rate = same_arms(shape=shape, rate=rate)
        require_pseudo_counts("shape", self.shape)
        require_positive("rate", self.rate)

    @property
    def xi(self) -> Array:
        return self.shape

    @property
    def nu(self) -> Array:
        return self.rate

    def check_reward(self, arm: Any, reward: Any) -> None:
        if is_concrete(reward):
            host = np.asarray(reward)
            if not np.all(np.isfinite(host) & (host >= 0) & (host == np.round(host))):
                raise ValueError(f"reward of a Poisson arm must be 0, 1, 2, ..., got {reward!r}")

    def added(self, total: Any, count: Any) -> dict[str, Any]:
        return {"shape": total, "rate": count}

    def sample_parameters(self, key: Array) -> tuple[Array, Array]:
        keys = per_arm_keys(key, self.num_arms)
        theta = jax.vmap(jax.random.gamma)(keys, self.shape) / self.rate
        return theta, theta

    def sample_rewards(self, key: Array, parameters: Array, horizon: int) -> Array:
        keys = per_arm_keys(key, self.num_arms)
        draw = jax.vmap(lambda k, theta: jax.random.poisson(k, theta, (horizon,)))
        return draw(keys, parameters).astype(parameters.dtype)

    def sample_sum(self, key: Array, parameters: Array, n: Array) -> Array:
        kind = parameters.dtype
        return jax.random.poisson(key, n.astype(kind) * parameters).astype(kind)

    def mean_sd(self) -> Array:
        return jnp.sqrt(self.shape) / self.rate

    def path_sds(self, rewards: Floats, means: Floats, worth: Floats) -> Floats:
        return np.sqrt(means / worth)

    def _mean_range(self) -> tuple[Array, Array]:
        # A Gamma tail falls like exp(-rate x): mean + 8 sd + 30 / rate leaves less than 1e-12.
        high = jnp.max(self.shape / self.rate + 8 * self.mean_sd() + 30 / self.rate)
        return jnp.zeros_like(high), high

    def _cdf(self, x: Array) -> Array:
        return gammainc(self.shape, self.rate * jnp.maximum(x, 0))

    def _expected_max(self, lam: Array) -> Array:
        scaled = self.rate * jnp.maximum(lam, 0)
        above = 1 - gammainc(self.shape + 1, scaled)
        return self.shape / self.rate * above + lam * gammainc(self.shape, scaled)

    def law(self, n: int | None) -> list[Any]:
        from scipy import stats

        pairs = list(zip(host64(self.shape), host64(self.rate), strict=True))
        if n is None:
            return [Continuous("gamma", (a,), 0.0, 1 / b) for a, b in pairs]
        if n == 0:
            return [point(a / b) for a, b in pairs]
        laws = []
        for a, b in pairs:
            total = stats.nbinom(a, b / (b + n))
            # From its tail to its tail: of some millions all below is as good as impossible.
            counts = np.arange(max(0, int(total.ppf(1e-18)) - 1), int(total.isf(1e-18)) + 2)
            laws.append(Discrete((a + counts) / (b + n), total.pmf(counts)))
        return laws
