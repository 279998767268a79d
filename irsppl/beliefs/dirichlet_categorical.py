"""Rewards from a short list of values, Dirichlet prior on their probabilities."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irsppl._checks import as_floats, host64, is_concrete, require, require_finite, require_positive
from irsppl._fields import changed
from irsppl.beliefs._abilities import FiniteRewards, PathVariances, RewardTables
from irsppl.beliefs._conjugate import Conjugate, host_sums, per_arm, per_arm_keys
from irsppl.inner.arrays import Floats

# The mean of a Dirichlet arm has no elementary law. With G_c ~ Gamma(alpha_c) the sign of
# sum_c (v_c - x) G_c is that of mu - x, and its characteristic function is a product, so both the
# CDF and E[(mu - x)+] are one-dimensional integrals; trapezoid nodes in log t resolve them.
_LOG_T = np.linspace(-10.0, 7.0, 256)


class DirichletCategorical(Conjugate, FiniteRewards, PathVariances):
    """P(reward = values[c]) = p_c, p ~ Dirichlet(alpha[a])."""

    divergence: ClassVar[str] = "bernoulli"  # of rewards mapped to [0, 1]
    _bounded: ClassVar[bool] = True

    alpha: Float[Array, "K C"]
    values: Float[Array, " C"]

    def __init__(self, alpha: Any, values: Any):
        alpha = as_floats("alpha", alpha, ndim=2)
        values = as_floats("values", values)
        if values.shape[0] != alpha.shape[1]:
            raise ValueError(
                f"values must have one entry per category: alpha has {alpha.shape[1]} columns, "
                f"values has {values.shape[0]}"
            )
        if alpha.shape[1] < 2:
            raise ValueError("alpha must have at least two categories (columns), got 1")
        dtype = jnp.result_type(alpha, values)
        self.alpha, self.values = alpha.astype(dtype), values.astype(dtype)
        require_positive("alpha", self.alpha)
        require_finite("values", self.values)
        if is_concrete(self.values):
            distinct = len(np.unique(np.asarray(self.values))) == values.shape[0]
            require("values", self.values, distinct, "distinct")

    @property
    def nu(self) -> Array:
        return self.alpha.sum(-1)

    @property
    def xi(self) -> Array:
        return self.alpha @ self.values

    def reward_range(self) -> tuple[Array, Array]:
        return jnp.min(self.values), jnp.max(self.values)

    def path_sds(self, rewards: Floats, means: Floats, worth: Floats) -> Floats:
        squares = host64(self.alpha) @ host64(self.values) ** 2
        squares = (squares[None, :, None] + host_sums(rewards**2)) / worth
        return np.sqrt(np.maximum(squares - means**2, 1e-12) / (worth + 1))

    def check_reward(self, arm: Any, reward: Any) -> None:
        if is_concrete(reward, self.values):
            with np.errstate(over="ignore"):
                host = np.asarray(reward, np.asarray(self.values).dtype)
            if not np.all(np.isin(host, np.asarray(self.values))):
                raise ValueError(
                    f"reward must be one of values = {np.asarray(self.values).tolist()}, "
                    f"got {reward!r}"
                )

    def _one_hot(self, rewards: Array) -> Array:
        """[..., C]: the category of each reward (the nearest value, so float noise is harmless)."""
        rewards = jnp.asarray(rewards, self.values.dtype)
        values = self.values.reshape((1,) * rewards.ndim + (-1,))
        category = jnp.argmin(jnp.abs(rewards[..., None] - values), axis=-1)
        return jax.nn.one_hot(category, self.values.shape[0], dtype=self.alpha.dtype)

    def given(self, arm: Array, reward: Array) -> Self:
        return changed(self, alpha=self.alpha.at[arm].add(self._one_hot(reward)))

    def posteriors_along(self, rewards: Array) -> Self:
        counts = jnp.cumsum(self._one_hot(rewards), axis=1)
        counts = jnp.pad(counts, ((0, 0), (1, 0), (0, 0)))
        return changed(self, alpha=self.alpha[:, None, :] + counts)

    def sample_parameters(self, key: Array) -> tuple[Array, Array]:
        keys = per_arm_keys(key, self.num_arms)
        probabilities = jax.vmap(jax.random.dirichlet)(keys, self.alpha)
        return probabilities @ self.values, probabilities

    def sample_rewards(self, key: Array, parameters: Array, horizon: int) -> Array:
        kind = parameters.dtype
        uniforms = per_arm(jax.random.uniform, key, self.num_arms, (horizon,), kind)
        edges = jnp.cumsum(parameters, axis=1)[:, None, :-1]
        return self.values[jnp.sum(uniforms[..., None] >= edges, axis=-1)]

    def sample_sum(self, key: Array, parameters: Array, n: Array) -> Array:
        # A multinomial, as successive binomials of what is left.
        left = jnp.broadcast_to(n.astype(parameters.dtype), (self.num_arms,))
        rest = jnp.ones_like(left)
        total = jnp.zeros_like(left)
        for c, sub in enumerate(jax.random.split(key, self.values.shape[0] - 1)):
            share = jnp.clip(parameters[:, c] / jnp.maximum(rest, 1e-30), 0, 1)
            count = jax.random.binomial(sub, left, share, dtype=parameters.dtype)
            total = total + count * self.values[c]
            left, rest = left - count, rest - parameters[:, c]
        return total + left * self.values[-1]

    def mean_sd(self) -> Array:
        mean = self.xi / self.nu
        spread = (self.alpha * (self.values[None, :] - mean[:, None]) ** 2).sum(-1)
        return jnp.sqrt(spread / self.nu / (self.nu + 1))

    def _mean_range(self) -> tuple[Array, Array]:
        return jnp.min(self.values), jnp.max(self.values)

    def _transform(self, x: Array) -> tuple[Array, Array, Array, Array, Array]:
        """t nodes, d log t, |phi(t)|, arg phi(t) of Q = sum_c (v_c - x) G_c, and E[Q]."""
        d = self.values.reshape((1,) * x.ndim + (-1,)) - x[..., None]  # [..., C]
        scale = jnp.sqrt((self.alpha * d**2).sum(-1))
        log_t = jnp.asarray(_LOG_T, x.dtype).reshape((1,) * x.ndim + (-1,))
        t = jnp.exp(log_t) / scale[..., None]  # [..., J]
        modulus, angle = jnp.zeros_like(t), jnp.zeros_like(t)
        for c in range(self.values.shape[0]):
            td = t * d[..., c, None]
            alpha = self.alpha[..., c, None]
            modulus = modulus - 0.5 * alpha * jnp.log1p(td**2)
            angle = angle + alpha * jnp.arctan(td)
        step = jnp.asarray(_LOG_T[1] - _LOG_T[0], x.dtype)
        return t, step, jnp.exp(modulus), angle, (self.alpha * d).sum(-1)

    def _cdf(self, x: Array) -> Array:
        low, high = self._mean_range()
        inside = jnp.clip(x, low, high)
        _, step, modulus, angle, _ = self._transform(inside)
        inner = _trapezoid(jnp.sin(angle) * modulus, step)
        # Ends of the integral: sin(angle) ~ t below the first node; |phi| ~ t^-nu above the last.
        ends = angle[..., 0] + jnp.sin(angle[..., -1]) * modulus[..., -1] / self.nu
        above = 0.5 + (inner + ends) / jnp.pi
        cdf = jnp.clip(1 - above, 0, 1)
        return jnp.where(x <= low, 0.0, jnp.where(x >= high, 1.0, cdf)).astype(x.dtype)

    def _expected_max(self, lam: Array) -> Array:
        low, high = self._mean_range()
        inside = jnp.clip(lam, low, high)
        t, step, modulus, angle, mean_q = self._transform(inside)
        # E|Q| = 2/pi integral (1 - Re phi) / t^2 dt, and E[Q+] = E[S] E[(mu - lam)+] (Lukacs).
        inner = _trapezoid((1 - modulus * jnp.cos(angle)) / t, step)
        # Above the last node the 1 remains, and Re phi ~ t^-nu; below the first 1 - Re phi ~ t^2.
        tail = modulus[..., -1] * jnp.cos(angle[..., -1]) / (self.nu + 1)
        head = (1 - modulus[..., 0] * jnp.cos(angle[..., 0])) / t[..., 0]
        absolute = 2 / jnp.pi * (inner + (1 - tail) / t[..., -1] + head)
        excess = 0.5 * (mean_q + absolute) / self.nu
        mean = self.xi / self.nu
        value = jnp.maximum(inside + excess, jnp.maximum(mean, inside))
        return jnp.where(lam <= low, mean, jnp.where(lam >= high, lam, value))

    def _path_cdf(self, rewards: Array, x: Array) -> Array:
        path = self.posteriors_along(rewards)
        one = lambda point: path._cdf(jnp.full(path.nu.shape, point, path.nu.dtype))  # noqa: E731
        return jnp.moveaxis(jax.lax.map(one, x), 0, -1)

    def reward_tables(self) -> RewardTables:
        alpha = host64(self.alpha)
        return RewardTables(alpha, None, np.broadcast_to(host64(self.values), alpha.shape))

    def natural_state(self) -> tuple[np.ndarray, np.ndarray]:
        alpha = host64(self.alpha)
        return alpha @ host64(self.values), alpha.sum(-1)


def _trapezoid(values: Array, step: Array) -> Array:
    return step * (values.sum(-1) - (values[..., 0] + values[..., -1]) / 2)
