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
# Q = sum_c (v_c - x) G_c is that of mu - x, and E[exp(sQ)] = M(s) is a product, so that P(Q > 0)
# and E[Q+] are integrals of M(s) / s and M(s) / s^2 along any curve that leaves the real axis at
# some c > 0 where M is finite. From the saddle point, and bent to the side to which Q is skewed, M
# falls and hardly oscillates, however rare a value or concentrated the belief. Trapezoid nodes in
# the logarithm of the distance from c.
LOG_T = np.linspace(-13.0, 25.0, 256)
BEND = np.pi / 12
BISECTIONS = 20  # the curve need not start at the saddle exactly


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
        values = self.values.reshape((1,) * mean.ndim + (-1,))
        spread = (self.alpha * (values - mean[..., None]) ** 2).sum(-1)
        return jnp.sqrt(spread / self.nu / (self.nu + 1))

    def _mean_range(self) -> tuple[Array, Array]:
        return jnp.min(self.values), jnp.max(self.values)

    def _upper(self, x: Array) -> tuple[Array, Array, Array]:
        """(whether mean <= x, tail, excess): P(mu > x) and E[(mu - x)+] if so, else of x - mu."""
        d = self.values.reshape((1,) * x.ndim + (-1,)) - x[..., None]  # [..., C]
        below = (self.alpha * d).sum(-1) <= 0
        d = jnp.where(below[..., None], d, -d)
        unit = jnp.max(d, axis=-1)
        r = d / unit[..., None]
        q = self._saddle(r)  # c in units of 1 / unit
        g = r / (1 - r * q[..., None])
        height = jnp.exp(-(self.alpha * jnp.log1p(-r * q[..., None])).sum(-1)) / jnp.pi  # M(c)
        side = jnp.where((self.alpha * g**3).sum(-1) > 0, -1, 1)
        cosine, sine = -side[..., None] * np.sin(BEND), np.cos(BEND)
        near = jnp.minimum(q, 1 / jnp.sqrt((self.alpha * g**2).sum(-1)))
        log_t = jnp.asarray(LOG_T, x.dtype).reshape((1,) * x.ndim + (-1,))
        t = jnp.exp(log_t) * near[..., None]  # [..., J]
        modulus, angle = jnp.zeros_like(t), jnp.zeros_like(t)
        for c in range(self.values.shape[0]):
            tg, alpha = t * g[..., c, None], self.alpha[..., c, None]
            modulus = modulus - 0.5 * alpha * jnp.log1p(tg * (tg - 2 * cosine))
            angle = angle + alpha * jnp.arctan2(tg * sine, 1 - tg * cosine)
        transform = jnp.exp(modulus) * jnp.exp(1j * angle)
        turn = cosine + 1j * sine
        over = 1 / (q[..., None] + t * turn)  # 1 / s
        steps = float(LOG_T[1] - LOG_T[0]) * t * turn * transform * over
        # Below the first node M is what it is at c; above the last M ~ s^-far.
        far = (self.alpha * (jnp.abs(g) * t[..., -1:] > 1)).sum(-1)
        tail = _trapezoid(steps) - jnp.log(over[..., 0] * q) + transform[..., -1] / far
        excess = _trapezoid(steps * over) - over[..., 0]
        excess = excess + transform[..., -1] * over[..., -1] / (far + 1)
        gain = jnp.maximum(height * excess.imag, 0) * unit / self.nu  # E[Q+] = nu E[(mu - x)+]
        return below, jnp.clip(height * tail.imag, 0, 1), gain

    def _saddle(self, r: Float[Array, "... C"]) -> Array:
        """q with sum_c alpha_c r_c / (1 - r_c q) = 0, at least some way off 0, the pole of 1 / s.

        r: at most 1, their weighted sum not positive; bisected on the scale of log(q / (1 - q)).
        """
        least = 0.5 / jnp.maximum(jnp.sqrt((self.alpha * r**2).sum(-1)), 1)
        low = jnp.log(least / (1 - least))
        high = jnp.full_like(low, 14.0)

        def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = ends
            middle = (low + high) / 2
            left = (self.alpha * r / (1 - r * jax.nn.sigmoid(middle)[..., None])).sum(-1) < 0
            return jnp.where(left, middle, low), jnp.where(left, high, middle)

        return jax.nn.sigmoid(jax.lax.fori_loop(0, BISECTIONS, halve, (low, high))[0])

    def _inside(self, x: Array) -> tuple[Array, Array, Array]:
        """x, or where it is beyond the values a number between them; and those."""
        low, high = self._mean_range()
        return jnp.where((x > low) & (x < high), x, (low + high) / 2), low, high

    def _cdf(self, x: Array) -> Array:
        inside, low, high = self._inside(x)
        below, tail, _ = self._upper(inside)
        cdf = jnp.where(below, 1 - tail, tail)
        return jnp.where(x <= low, 0.0, jnp.where(x >= high, 1.0, cdf)).astype(x.dtype)

    def _expected_max(self, lam: Array) -> Array:
        inside, low, high = self._inside(lam)
        below, _, gain = self._upper(inside)
        mean = self.xi / self.nu
        value = jnp.where(below, lam, mean) + gain
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


def _trapezoid(steps: Array) -> Array:
    return steps.sum(-1) - (steps[..., 0] + steps[..., -1]) / 2
