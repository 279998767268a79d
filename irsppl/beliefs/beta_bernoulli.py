"""Bernoulli rewards, Beta prior."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc, betaln, xlog1py, xlogy
from jaxtyping import Array, Float

from irsppl._checks import host64, is_concrete, require_pseudo_counts, same_arms
from irsppl._fields import changed
from irsppl.beliefs._abilities import FiniteRewards, RewardTables
from irsppl.beliefs._conjugate import Natural, path_sums, per_arm, per_arm_keys
from irsppl.inner.laws import Continuous, Discrete


class BetaBernoulli(Natural, FiniteRewards):
    """reward ~ Bernoulli(theta), theta ~ Beta(alpha, beta)."""

    divergence: ClassVar[str] = "bernoulli"
    code: ClassVar[int] = 0
    _bounded: ClassVar[bool] = True

    alpha: Float[Array, " K"]
    beta: Float[Array, " K"]

    def __init__(self, alpha: Any, beta: Any):
        self.alpha, self.beta = same_arms(alpha=alpha, beta=beta)
        require_pseudo_counts("alpha", self.alpha)
        require_pseudo_counts("beta", self.beta)

    @property
    def xi(self) -> Array:
        return self.alpha

    @property
    def nu(self) -> Array:
        return self.alpha + self.beta

    def reward_range(self) -> tuple[float, float]:
        return 0.0, 1.0

    def check_reward(self, arm: Any, reward: Any) -> None:
        if is_concrete(reward) and not np.all(np.isin(np.asarray(reward), (0, 1))):
            raise ValueError(f"reward of a Bernoulli arm must be 0 or 1, got {reward!r}")

    def added(self, total: Any, count: Any) -> dict[str, Any]:
        return {"alpha": total, "beta": count - total}

    def posteriors_along(self, rewards: Array) -> Self:
        wins = path_sums(rewards.astype(self.alpha.dtype))
        n = jnp.arange(rewards.shape[1] + 1, dtype=self.alpha.dtype)[None, :]
        # In this order: the last digits of results for a key depend on it.
        return changed(self, alpha=self.alpha[:, None] + wins, beta=self.beta[:, None] + n - wins)

    def sample_parameters(self, key: Array) -> tuple[Array, Array]:
        keys = per_arm_keys(key, self.num_arms)
        theta = jax.vmap(jax.random.beta)(keys, self.alpha, self.beta)
        return theta, theta

    def sample_rewards(self, key: Array, parameters: Array, horizon: int) -> Array:
        kind = parameters.dtype
        uniforms = per_arm(jax.random.uniform, key, self.num_arms, (horizon,), kind)
        return (uniforms < parameters[:, None]).astype(parameters.dtype)

    def sample_sum(self, key: Array, parameters: Array, n: Array) -> Array:
        count = jnp.broadcast_to(n.astype(parameters.dtype), parameters.shape)
        return jax.random.binomial(key, count, parameters, dtype=parameters.dtype)

    def sample_rewards_at(self, key: Array, means: Array, horizon: int) -> Array:
        if is_concrete(means) and np.any((np.asarray(means) < 0) | (np.asarray(means) > 1)):
            raise ValueError(f"means of Bernoulli arms must lie in [0, 1], got {means!r}")
        return self.sample_rewards(key, jnp.asarray(means, self.alpha.dtype), horizon)

    def mean_sd(self) -> Array:
        total = self.alpha + self.beta
        return jnp.sqrt(self.alpha * self.beta / (total + 1)) / total

    def _mean_range(self) -> tuple[Array, Array]:
        one = jnp.ones((), self.alpha.dtype)
        return jnp.zeros_like(one), one

    def _cdf(self, x: Array) -> Array:
        return betainc(self.alpha, self.beta, jnp.clip(x, 0, 1))

    def _expected_max(self, lam: Array) -> Array:
        # E[max(mu, lam)] = m + (lam - m) F + lam^a (1-lam)^b / ((a+b) B(a,b)).
        cdf, density = self._start(lam)
        return _beta_gamma(self.alpha, self.beta, lam, cdf, density)

    def _start(self, lam: Array) -> tuple[Array, Array]:
        inside = jnp.clip(lam, 0, 1)
        log_density = (
            xlogy(self.alpha, inside) + xlog1py(self.beta, -inside) - betaln(self.alpha, self.beta)
        )
        return betainc(self.alpha, self.beta, inside), jnp.exp(log_density)

    def _path(self, rewards: Array, x: Array) -> tuple[Array, Array, Self]:
        """CDF and x^a (1-x)^b / B(a, b) along the path, by their one-step recurrences.

        rewards [K, N], x [K, J] give [K, N+1, J]: the incomplete beta function, slow in XLA, is
        evaluated only at the root.
        """
        alpha, beta = self.alpha[:, None], self.beta[:, None]
        shape = x.shape
        root = changed(
            self, alpha=jnp.broadcast_to(alpha, shape), beta=jnp.broadcast_to(beta, shape)
        )
        start = (*root._start(x), alpha, beta)
        inside = jnp.clip(x, 0, 1)

        def step(state: tuple[Array, ...], reward: Array) -> tuple[Any, Any]:
            cdf, density, a, b = state
            win = reward[:, None] > 0
            total = a + b
            cdf_next = jnp.where(win, cdf - density / a, cdf + density / b)
            density_next = density * total * jnp.where(win, inside / a, (1 - inside) / b)
            state = (cdf_next, density_next, a + win, b + ~win)
            return state, (cdf_next, density_next)

        _, (cdfs, densities) = jax.lax.scan(step, start, rewards.T.astype(self.alpha.dtype))
        cdfs = jnp.concatenate([start[0][None], cdfs]).transpose(1, 0, 2)
        densities = jnp.concatenate([start[1][None], densities]).transpose(1, 0, 2)
        return jnp.clip(cdfs, 0, 1), densities, self.posteriors_along(rewards)

    def _path_expected_max(self, rewards: Array, lam: Array) -> Array:
        cdf, density, path = self._path(rewards, lam[:, None])
        lam = jnp.broadcast_to(lam[:, None], path.alpha.shape)
        return _beta_gamma(path.alpha, path.beta, lam, cdf[..., 0], density[..., 0])

    def _path_cdf(self, rewards: Array, x: Array) -> Array:
        return self._path(rewards, jnp.broadcast_to(x[None, :], (self.num_arms, x.shape[0])))[0]

    def law(self, n: int | None) -> list[Any]:
        from scipy.special import betaln

        alpha, beta = host64(self.alpha), host64(self.beta)
        if n is None:
            return [Continuous("beta", (a, b)) for a, b in zip(alpha, beta, strict=True)]
        wins = np.arange(n + 1)
        ways = -np.log(n + 1) - betaln(n - wins + 1, wins + 1)
        laws: list[Any] = []
        for a, b in zip(alpha, beta, strict=True):
            mass = np.exp(ways + betaln(wins + a, n - wins + b) - betaln(a, b))
            laws.append(Discrete((a + wins) / (a + b + n), mass))
        return laws

    def reward_tables(self) -> RewardTables:
        counts = np.stack([host64(self.beta), host64(self.alpha)], axis=1)
        return RewardTables(counts, None, np.broadcast_to([0.0, 1.0], counts.shape))


def _beta_gamma(alpha: Array, beta: Array, lam: Array, cdf: Array, density: Array) -> Array:
    total = alpha + beta
    mean = alpha / total
    # F = 0 below the support and 1 above it, so the formula holds for every lam.
    return mean + (lam - mean) * cdf + density / total
