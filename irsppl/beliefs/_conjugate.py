"""What the conjugate families share: posterior means (xi + sum of rewards) / (nu + n)."""

from __future__ import annotations

import abc
import warnings
from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from irsppl._checks import check_levels, host64, is_concrete, require_positive, require_range
from irsppl._fields import changed
from irsppl.beliefs._abilities import ExactLaws, InKernels
from irsppl.beliefs._base import Belief
from irsppl.beliefs._future import IndependentFuture
from irsppl.inner.nodes import expected_best_lattice, legendre, round_centers
from irsppl.outcomes import Outcome

# Nodes to each side of each arm's center for E[max_a mu_a] on the count lattice: errors of 1e-4
# prior standard deviations at the most, of 1e-5 in root mean square.
LATTICE_NODES = 24
# A difference between arms that a number format resolves less finely than this is warned of.
_FEWEST_UNITS = 64


class Conjugate(Belief):
    """Independent arms of one conjugate family, hyperparameters `[K]` per field.

    The closed forms below are elementwise in the hyperparameters, so `posteriors_along(rewards)`,
    the same class with fields `[K, N+1]`, answers for every point of a sampled path at once.
    """

    # Means live on a bounded interval, and their CDFs are polynomials or nearly.
    _bounded: ClassVar[bool] = False

    @property
    @abc.abstractmethod
    def xi(self) -> Array:
        """Prior pseudo-sum of rewards."""

    @property
    @abc.abstractmethod
    def nu(self) -> Array:
        """Prior pseudo-count of rewards."""

    @abc.abstractmethod
    def posteriors_along(self, rewards: Float[Array, "K N"]) -> Self:
        """Hyperparameters after the first 0..N rewards of each arm, fields `[K, N+1]`."""

    @abc.abstractmethod
    def sample_parameters(self, key: Array) -> tuple[Array, Any]:
        """(means [K], whatever `sample_rewards` needs)."""

    @abc.abstractmethod
    def sample_rewards(self, key: Array, parameters: Any, horizon: int) -> Array:
        """Rewards `[K, horizon]`; a longer horizon extends, never changes, a shorter one."""

    @abc.abstractmethod
    def sample_sum(self, key: Array, parameters: Any, n: Array) -> Array:
        """Sum of n rewards of each arm, drawn at once; n may be traced and may be 0."""

    @abc.abstractmethod
    def _mean_range(self) -> tuple[Array, Array]:
        """An interval that holds all arms' means but for a negligible probability."""

    @abc.abstractmethod
    def _cdf(self, x: Array) -> Array:
        """Elementwise P(mu <= x), hyperparameters and x of one shape."""

    @abc.abstractmethod
    def _expected_max(self, lam: Array) -> Array:
        """Elementwise E[max(mu, lam)]."""

    def __check_init__(self) -> None:
        """Parameters that are numbers, but whose mean, spread or weight is not, are refused."""
        if not is_concrete(self):
            return
        require_range(self)
        derived = {"prior weight": self.nu, "mean": self.predictive_mean(), "sd": self.mean_sd()}
        for what, value in derived.items():
            host = np.asarray(value)
            if not np.all(np.isfinite(host)) or (what != "mean" and not np.all(host > 0)):
                given = {name: np.asarray(leaf).tolist() for name, leaf in vars(self).items()}
                raise ValueError(
                    f"{', '.join(given)} must lie closer together in size: their {what} is "
                    f"{host.tolist()} in {host.dtype}, got {given}; rescale them, or work in "
                    "double precision (jax_enable_x64)"
                )
        means, sds = np.asarray(derived["mean"]), np.asarray(derived["sd"])
        unit = float(np.finfo(means.dtype).eps * np.abs(means).max())
        apart = float(max(sds.max(), means.max() - means.min()))
        if apart < _FEWEST_UNITS * unit:
            warnings.warn(
                f"mean rewards of {np.abs(means).max():.4g} are kept to {unit:.2g} in "
                f"{means.dtype}, but arms differ by {apart:.2g} only: regrets, bounds and what "
                "policies learn are rounded to that. Subtract a constant from means and rewards, "
                "or work in double precision (jax_enable_x64)",
                stacklevel=3,
            )

    # ---- shared
    @property
    def num_arms(self) -> int:
        return self.nu.shape[0]

    def predictive_mean(self) -> Array:
        return self.xi / self.nu

    def cdf(self, x: Any) -> Array:
        check_levels("x", x, self.num_arms)
        return _answer(self, "_cdf", jnp.asarray(x, self.nu.dtype))

    def expected_max(self, lam: Any) -> Array:
        check_levels("lam", lam, self.num_arms)
        return _answer(self, "_expected_max", jnp.asarray(lam, self.nu.dtype))

    def draw(self, key: Array, horizon: int) -> Outcome:
        parameter_key, reward_key = jax.random.split(key)
        means, parameters = self.sample_parameters(parameter_key)
        return Outcome(means, self.sample_rewards(reward_key, parameters, horizon))

    def sample_means(self, key: Array) -> Array:
        return self.sample_parameters(key)[0]

    def sample_future_means(self, key: Array, n: Array, horizon: int) -> Array:
        parameter_key, reward_key = jax.random.split(key)
        _, parameters = self.sample_parameters(parameter_key)
        n = jnp.asarray(n)
        return (self.xi + self.sample_sum(reward_key, parameters, n)) / (self.nu + n)

    def sample_prefix(
        self, key: Array, size: int, n: Array
    ) -> tuple[Float[Array, " K"], Float[Array, "K size"], Float[Array, " K"]]:
        """One future without its bulk: (means, first `size` rewards, posterior means after n).

        Parameters once, then `size` rewards of each arm, then the sum of the n - size others at
        once; n may be traced and may be less than `size`. Means and rewards are those of `draw`
        with the same key.
        """
        parameter_key, reward_key = jax.random.split(key)
        means, parameters = self.sample_parameters(parameter_key)
        rewards = self.sample_rewards(reward_key, parameters, size)
        n = jnp.asarray(n)
        # The arms' own keys are those of numbers below num_arms.
        rest_key = jax.random.fold_in(reward_key, self.num_arms)
        rest = self.sample_sum(rest_key, parameters, jnp.maximum(n - size, 0))
        first = jnp.take(path_sums(rewards), jnp.minimum(n, size), axis=1)
        return means, rewards, (self.xi + first + rest) / (self.nu + n)

    def along(self, rewards: Float[Array, "K N"]) -> ConjugateFuture:
        return ConjugateFuture(self, rewards)

    # ---- how a `ConjugateFuture` answers, for families that have better ways
    def _path_means(self, rewards: Float[Array, "K N"]) -> Float[Array, "K N+1"]:
        sums = path_sums(rewards.astype(self.nu.dtype))
        n = jnp.arange(rewards.shape[1] + 1, dtype=self.nu.dtype)
        return (self.xi[:, None] + sums) / (self.nu[:, None] + n[None, :])

    def _path_expected_max(self, rewards: Array, lam: Array) -> Float[Array, "K N+1"]:
        path = self.posteriors_along(rewards)
        return path._expected_max(jnp.broadcast_to(lam[:, None], path.nu.shape))

    def _path_cdf(self, rewards: Array, x: Array) -> Float[Array, "K N+1 J"]:
        """`[a, n, j]`: P(mu_a <= x_j) after arm a's first n rewards, x `[J]`."""

        def one(arm: Self) -> Float[Array, "N+1 J"]:
            shape = (*arm.nu.shape, x.shape[0])
            wide = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:, None], shape), arm)
            return wide._cdf(jnp.broadcast_to(x[None, :], shape))

        # Not in a loop, XLA would evaluate it anew at each point of the lattice.
        return jax.lax.map(one, self.posteriors_along(rewards))

    def _path_expected_best(self, rewards: Array) -> Float[Array, "..."]:
        if self.num_arms == 1:
            return self._path_means(rewards)[0]
        low, high = self._mean_range()
        path = self.posteriors_along(rewards)
        # Posteriors as narrow as a distance to an arm's last one lie about as near to that: nodes
        # round these resolve all of the path's. Prior nodes would miss posteriors between them.
        around = path.predictive_mean()[:, -1], path.mean_sd()[:, -1]
        x, weights = round_centers(low, high, *around, LATTICE_NODES)
        if self._bounded:  # plain nodes do better until posteriors are as narrow as their spacing
            wide = jnp.max(path.nu) < (x.size / 6) ** 2
            plain = legendre(low, high, x.size)
            x, weights = jnp.where(wide, plain[0], x), jnp.where(wide, plain[1], weights)
        best = expected_best_lattice(self._path_cdf(rewards, x), weights, high)
        beyond = path._beyond(high)
        for own in () if beyond is None else jnp.ix_(*beyond):
            best = best + own
        return best

    def _beyond(self, high: Array) -> Array | None:
        """Elementwise E[(mu - high)+], where `_mean_range` ends at high and that is not negligible.

        Added up over arms it is a martingale and at least what E[max] has there: a power tail that
        is cut would let means exceed their E[max], in futures that few samples have.
        """
        return None

    def natural_state(self) -> tuple[np.ndarray, np.ndarray]:
        """Host (xi [K], nu [K]): posterior means are (xi + sum of rewards) / (nu + n)."""
        return host64(self.xi), host64(self.nu)


class Natural(Conjugate, ExactLaws, InKernels):
    """A family whose parameters grow by sums and numbers of rewards."""

    code: ClassVar[int]  # in irsppl.inner.cpu.families

    @abc.abstractmethod
    def added(self, total: Any, count: Any) -> dict[str, Any]:
        """What so many rewards, of that sum, add to each parameter."""

    def given(self, arm: Array, reward: Array) -> Self:
        more = self.added(jnp.asarray(reward, self.nu.dtype), 1)
        return changed(self, **{n: getattr(self, n).at[arm].add(x) for n, x in more.items()})

    def posteriors_along(self, rewards: Array) -> Self:
        n = jnp.arange(rewards.shape[1] + 1, dtype=self.nu.dtype)[None, :]
        more = self.added(path_sums(rewards.astype(self.nu.dtype)), n)
        return changed(self, **{name: getattr(self, name)[:, None] + x for name, x in more.items()})

    def sample_rewards_at(self, key: Array, means: Array, horizon: int) -> Array:
        require_positive("means", means)
        return self.sample_rewards(key, jnp.asarray(means, self.nu.dtype), horizon)

    def kernel_state(self) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
        xi, nu = self.natural_state()
        return self.code, xi, nu, np.zeros_like(xi)


class ConjugateFuture(IndependentFuture):
    """Computed when it is asked: one sum and a closed form per point of the path."""

    belief: Conjugate
    rewards: Float[Array, "K N"]

    def own_means(self) -> Array:
        return self.belief._path_means(self.rewards)

    def expected_max(self, lam: Array) -> Array:
        return self.belief._path_expected_max(self.rewards, lam)

    def expected_best(self) -> Array:
        return self.belief._path_expected_best(self.rewards)


@eqx.filter_jit
def _answer(belief: Conjugate, question: str, level: Array) -> Float[Array, " K"]:
    """At one level, or one per arm. One program, not one for each operation."""
    return getattr(belief, question)(jnp.broadcast_to(level, belief.nu.shape))


def path_sums(rewards: Float[Array, "K N"]) -> Float[Array, "K N+1"]:
    """Cumulative sums along each arm's rewards, starting with the empty sum."""
    return jnp.pad(jnp.cumsum(rewards, axis=1), ((0, 0), (1, 0)))


def host_sums(x: Float[np.ndarray, "S K N"]) -> Float[np.ndarray, "S K N+1"]:
    """The same of a batch, on the host."""
    return np.concatenate([np.zeros((*x.shape[:2], 1)), np.cumsum(x, axis=2)], axis=2)


def per_arm(draw: Any, key: Array, num_arms: int, shape: tuple[int, ...], dtype: Any) -> Array:
    """`[K, *shape]`: draws of one of `jax.random`'s standard laws, each arm's by its own key."""
    return jax.vmap(lambda k: draw(k, shape, dtype))(per_arm_keys(key, num_arms))


def per_arm_keys(key: Array, num_arms: int) -> Array:
    """One key per arm, so that an arm's draws do not move when the horizon or K changes."""
    return jax.vmap(lambda a: jax.random.fold_in(key, a))(jnp.arange(num_arms))
