"""Correlated arms whose means are linear in shared weights, all Gaussian: exact throughout."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float, Int

from irsppl._checks import as_floats, host64, is_concrete, require_finite, require_positive
from irsppl._fields import changed
from irsppl.beliefs._abilities import ExactMax
from irsppl.beliefs._base import Belief
from irsppl.beliefs._conjugate import ConjugateFuture, path_sums, per_arm
from irsppl.beliefs._future import CorrelatedFuture, Counts, at_counts, lattice
from irsppl.beliefs.normal_normal import NormalNormal
from irsppl.outcomes import Outcome

# An arm whose mean is known (features 0) has this spread, in units of its noise: NormalNormal
# divides by it.
LEAST_SD = 1e-12
# Nodes of Owen's T integral over at most [0, 1], where its integrand is smooth.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
# Cells of tables over pairs of arms that are made at a time.
_CELLS = 2**20
# Stands for 0 where something is divided by it.
_TINY = 1e-30


class LinearGaussian(Belief, ExactMax):
    """reward of arm a ~ Normal(offset[a] + features[a] @ theta, noise_sd[a]), theta ~ N(mean, cov).

    features: `[K, d]`; mean: `[d]`; cov: `[d, d]`, positive definite; noise_sd: a number or `[K]`;
    offset: `[K]`, zero if omitted. A row of zeros in `features` is an arm whose mean is known.

    The covariance is kept as a square root, cov = root root', updated in Potter's form, so that
    rounding cannot make it indefinite. Along a future everything is computed for the whitened
    weights z, theta = mean + root z: their precision after n_b rewards of each arm b,

        A = I + sum_b n_b g_b g_b',   g_b = root' features[b] / noise_sd[b],

    has no eigenvalue below 1, and posterior means are prior means plus noise_sd[a] g_a' A^-1 c with
    c = sum_b g_b (sum of arm b's rewards less their prior mean) / noise_sd[b].
    """

    divergence: ClassVar[str] = "gaussian"

    mean: Float[Array, " d"]
    root: Float[Array, "d d"]
    features: Float[Array, "K d"]
    noise_sd: Float[Array, " K"]
    offset: Float[Array, " K"]
    reason: str = eqx.field(static=True)  # why it was chosen for a model, for the repr

    def __init__(
        self,
        features: Any,
        mean: Any,
        cov: Any,
        noise_sd: Any,
        offset: Any = None,
        *,
        reason: str = "",
    ):
        x = as_floats("features", features, ndim=None)
        if x.ndim != 2:
            raise ValueError(f"features must be [K, d], one row per arm, got shape {x.shape}")
        num_arms, dim = x.shape
        m = as_floats("mean", mean, ndim=None)
        if m.shape != (dim,):
            raise ValueError(
                f"mean must be [{dim}], one entry per column of features, got shape {m.shape}"
            )
        s = as_floats("noise_sd", noise_sd, ndim=None)
        if s.shape not in ((), (num_arms,)):
            raise ValueError(
                f"noise_sd must be a number or [{num_arms}], one per arm, got shape {s.shape}"
            )
        b = as_floats("offset", np.zeros(num_arms, s.dtype) if offset is None else offset, None)
        if b.shape != (num_arms,):
            raise ValueError(f"offset must be [{num_arms}], one per arm, got shape {b.shape}")
        require_finite("features", x)
        require_finite("mean", m)
        require_positive("noise_sd", s)
        require_finite("offset", b)
        root, kind = _root(cov, dim)
        dtype = jnp.result_type(x, m, s, b, kind)
        self.features, self.mean, self.offset = x.astype(dtype), m.astype(dtype), b.astype(dtype)
        self.noise_sd = jnp.broadcast_to(s, (num_arms,)).astype(dtype)
        self.root = jnp.asarray(root, dtype)
        self.reason = reason

    def __check_init__(self) -> None:
        if not is_concrete(self):
            return
        spread = np.linalg.norm(host64(self.features) @ host64(self.root), axis=1)
        with np.errstate(over="ignore"):
            worth = (spread / host64(self.noise_sd)) ** 2
        if not np.all(worth <= np.finfo(self.mean.dtype).max ** 0.5):
            raise ValueError(
                "noise_sd must not be that small beside the arms' prior standard deviations: a "
                f"reward would weigh up to {worth.max():.2g} times the prior, more than "
                f"{self.mean.dtype} can carry, got {np.asarray(self.noise_sd).tolist()} and "
                f"{spread.tolist()}"
            )

    @property
    def num_arms(self) -> int:
        return self.features.shape[0]

    @property
    def dim(self) -> int:
        """d, the number of weights."""
        return self.features.shape[1]

    @property
    def is_independent(self) -> bool:
        return False

    @property
    def cov(self) -> Float[Array, "d d"]:
        return self.root @ self.root.T

    def __repr__(self) -> str:
        what = f"LinearGaussian belief of {self.num_arms} correlated arms, {self.dim} weights"
        return f"{what}; {self.reason}" if self.reason else what

    # ---- the three questions
    def predictive_mean(self) -> Array:
        return self.features @ self.mean + self.offset

    def reward_scale(self) -> Array:
        return self.noise_sd

    def check_reward(self, arm: Any, reward: Any) -> None:
        require_finite("reward", reward)

    def given(self, arm: Array, reward: Array) -> Self:
        # Potter (1963): with f = root' x and v = f'f + s^2 the new root is
        # root (I - f f' / (v + s sqrt(v))), whose square is the posterior covariance.
        x, s = self.features[arm], self.noise_sd[arm]
        f = self.root.T @ x
        v = f @ f + s**2
        spread = self.root @ f
        surprise = jnp.asarray(reward, x.dtype) - (x @ self.mean + self.offset[arm])
        mean = self.mean + spread * (surprise / v)
        root = self.root - jnp.outer(spread, f / (v + s * jnp.sqrt(v)))
        return changed(self, mean=mean, root=root)

    def draw(self, key: Array, horizon: int) -> Outcome:
        parameter_key, reward_key = jax.random.split(key)
        means = self.sample_means(parameter_key)
        return Outcome(means, self.sample_rewards_at(reward_key, means, horizon))

    # ---- along a future
    def along(self, rewards: Float[Array, "K N"]) -> LinearFuture:
        return LinearFuture(self, rewards)

    def along_centred(self, rewards: Array) -> tuple[LinearFuture, Array]:
        # The weights' mean goes into the offsets, so that nothing is rounded by adding it again.
        prior = self.predictive_mean()
        level = jnp.max(prior)
        lower = changed(self, mean=jnp.zeros_like(self.mean), offset=prior - level)
        return lower.along(rewards - level), level

    def solve(
        self, counts: Int[Array, "M K"]
    ) -> tuple[Float[Array, "M d d"], Float[Array, "M d K"]]:
        """H with H'H = A^-1 at counts[m], and H g', so that g A^-1 g' is the latter's square.

        Depends on the counts alone: futures that are solved side by side share it.
        """
        g = _graded((self.features @ self.root) / self.noise_sd[:, None])
        outer = (g[:, :, None] * g[:, None, :]).reshape(self.num_arms, -1)
        precision = outer.T @ counts.T.astype(g.dtype)
        half = _inverse_factor(precision.reshape(self.dim, self.dim, -1))
        return jnp.moveaxis(half, -1, 0), jnp.einsum("ijm,kj->mik", half, g)

    def means_given(self, seen: Float[Array, "M K"], counts: Int[Array, "M K"]) -> Array:
        """`[M, K]`: means of every arm when its surprises so far sum to `seen`."""
        _, solved = self.solve(counts)
        learnt = jnp.einsum("mjk,mj->mk", solved, jnp.einsum("mjk,mk->mj", solved, seen))
        return self.predictive_mean()[None, :] + learnt * self.noise_sd[None, :]

    def marginals(self) -> NormalNormal:
        """Every arm alone, as if rewards of the others were never seen."""
        sd = jnp.linalg.norm(self.features @ self.root, axis=1)
        least = float(jnp.finfo(sd.dtype).tiny) ** 0.5  # whose square NormalNormal can hold
        sd = jnp.maximum(sd, jnp.maximum(LEAST_SD * self.noise_sd, 2 * least))
        return NormalNormal(self.predictive_mean(), sd, self.noise_sd)

    # ---- of the unknown means
    def _whitened(self, key: Array) -> Float[Array, " d"]:
        """Whitened weights, each with a key of its own."""
        return per_arm(jax.random.normal, key, self.dim, (), self.mean.dtype)

    def sample_means(self, key: Array) -> Array:
        return self.predictive_mean() + self.features @ (self.root @ self._whitened(key))

    def sample_future_means(self, key: Array, n: Array, horizon: int) -> Array:
        parameter_key, reward_key = jax.random.split(key)
        n = jnp.broadcast_to(jnp.asarray(n), (self.num_arms,))
        many = n.astype(self.mean.dtype)
        gaps = self.features @ (self.root @ self._whitened(parameter_key)) / self.noise_sd
        noise = jax.random.normal(reward_key, many.shape, many.dtype)
        seen = many * gaps + jnp.sqrt(many) * noise
        return self.means_given(seen[None, :], n[None, :])[0]

    def sample_rewards_at(self, key: Array, means: Array, horizon: int) -> Array:
        means = jnp.asarray(means, self.mean.dtype)
        noise = per_arm(jax.random.normal, key, self.num_arms, (horizon,), means.dtype)
        return means[:, None] + self.noise_sd[:, None] * noise

    def expected_max(self, lam: Any) -> Array:
        return self.marginals().expected_max(lam)

    def cdf(self, x: Any) -> Array:
        return self.marginals().cdf(x)

    def mean_sd(self) -> Array:
        return self.marginals().sd

    def footprint(self, horizon: int) -> int:
        pairs = min(self.num_arms**2 * (horizon + 1), _CELLS)
        return 2 * self.num_arms * (horizon + 1) + pairs

    def exact_expected_best(self, counts: np.ndarray | None) -> float | None:
        if self.num_arms > 3:
            return None  # no closed form
        x, root = host64(self.features), host64(self.root)
        prior = x @ host64(self.mean) + host64(self.offset)
        spread = x @ root
        if counts is not None:
            # Posterior means vary as F (I - A^-1) F' = F V diag(w^2 / (1 + w^2)) V' F'.
            scale = np.sqrt(np.asarray(counts, float) / host64(self.noise_sd) ** 2)
            _, w, v = np.linalg.svd(scale[:, None] * spread, full_matrices=False)
            spread = (spread @ v.T) * (w / np.hypot(1, w))[None, :]
        return float(expected_best(prior, spread))


class LinearFuture(CorrelatedFuture):
    """Given an arm's own rewards only, the arms' marginals; else one solve per vector of counts."""

    belief: LinearGaussian
    surprises: Float[Array, "K N+1"]  # [b, n]: of b's first n rewards together, in noise units
    alone: ConjugateFuture

    def __init__(self, belief: LinearGaussian, rewards: Float[Array, "K N"]):
        self.belief = belief
        gaps = rewards.astype(belief.mean.dtype) - belief.predictive_mean()[:, None]
        self.surprises = path_sums(gaps / belief.noise_sd[:, None])
        self.alone = belief.marginals().along(rewards)

    def own_means(self) -> Array:
        return self.alone.own_means()

    def expected_max(self, lam: Array) -> Array:
        return self.alone.expected_max(lam)

    def means(self, counts: Counts) -> Array:
        seen, known = at_counts(self.surprises, counts), counts
        if isinstance(seen, list):
            seen, known = (jnp.stack(jnp.broadcast_arrays(*each)) for each in (seen, counts))
        known = jnp.broadcast_to(jnp.asarray(known), seen.shape)
        num_arms = len(seen)
        means = self.belief.means_given(seen.reshape(num_arms, -1).T, known.reshape(num_arms, -1).T)
        return means.T.reshape(seen.shape)

    def separable(self, own: Array, others: Array) -> tuple[Array, Array]:
        """Solved at the counts `others` of *all* arms, then each arm's own count is put right.

        Let q = g_a' A^-1 g_a there. Taking arm a's n rewards out of A again (Sherman and Morrison)
        divides by 1 - n q, which would cancel next to an arm that tells much more than the others.
        It is never subtracted: the rows sqrt(n_b) g_b and those of the identity make a projection
        together, so q (1 - n q) = sum over b other than a of n_b (g_b' A^-1 g_a)^2 + |A^-1 g_a|^2.
        """
        belief, num_arms = self.belief, len(self.surprises)
        own, others = jnp.asarray(own), jnp.broadcast_to(jnp.asarray(others), own.shape)
        seen = at_counts(self.surprises, others)
        half, solved = belief.solve(others.T)
        off = 1 - jnp.eye(num_arms, dtype=solved.dtype)

        def one(half: Array, solved: Array, n: Array, seen: Array) -> tuple[Array, Array, Array]:
            cross = solved.T @ solved
            q = jnp.diagonal(cross)
            cross = cross * off
            spare = cross**2 @ n.astype(half.dtype) + jnp.sum((half.T @ solved) ** 2, axis=0)
            return cross @ seen, q, jnp.where(q > _TINY, spare / jnp.maximum(q, _TINY), 1)

        at = (half, solved, others.T, seen.T)
        together = max(1, _CELLS // num_arms**2)
        if own.shape[1] <= together:
            found = jax.vmap(one)(*at)
        else:
            found = jax.lax.map(lambda part: one(*part), at, batch_size=together)
        learnt, q, rest = (part.T for part in found)
        total = rest + own.astype(q.dtype) * q
        shift = (learnt + q * at_counts(self.surprises, own)) / total
        noise = belief.noise_sd[:, None]
        return belief.predictive_mean()[:, None] + noise * shift, noise * jnp.sqrt(q / total)

    def expected_best(self) -> Array:
        num_arms, size = self.surprises.shape
        if num_arms > 3:
            raise ValueError(
                "E[max of the means] of correlated Gaussian arms has a closed form for two and "
                f"three arms only, and there are {num_arms}: use 'irs.ff', 'irs.fh' or "
                "'irs.v-zero-separable' instead of 'irs.v-emax'"
            )
        grid = lattice(num_arms, size)
        means = self.means(grid).reshape(num_arms, -1).T
        counts = np.stack(np.broadcast_arrays(*grid)).reshape(num_arms, -1).T
        _, solved = self.belief.solve(jnp.asarray(counts))
        spread = jnp.swapaxes(solved, 1, 2) * self.belief.noise_sd[None, :, None]
        return expected_best(means, spread).reshape((size,) * num_arms)


def _graded(g: Float[Array, "K d"]) -> Float[Array, "K d"]:
    """g in other orthonormal coordinates: first what the most telling arm tells, then the next.

    The precision that g makes is then graded, and factoring it does not drown the directions of
    which rewards tell little in the rounding of those of which they tell much: errors grow with the
    ratio of the two, not with its square. Gram and Schmidt's axes along the largest remainder; what
    is left of an arm after rounding only does not count, and an axis that no arm needs is 0.
    """
    rounding = (8 * jnp.finfo(g.dtype).eps) ** 2 * jnp.sum(g**2, axis=1)

    def step(carry: tuple[Array, Array], j: Array) -> tuple[tuple[Array, Array], None]:
        axes, rest = carry
        square = jnp.sum(rest**2, axis=1)
        square = jnp.where(square > rounding, square, 0)
        axis = rest[jnp.argmax(square)]
        for _ in range(2):  # once is not enough where little is left
            axis = axis - (axes @ axis) @ axes
        length = jnp.sqrt(jnp.sum(axis**2))
        axis = jnp.where(jnp.max(square) > 0, axis / jnp.maximum(length, _TINY), 0)
        return (axes.at[j].set(axis), rest - (rest @ axis)[:, None] * axis[None, :]), None

    dim = g.shape[1]
    (axes, _), _ = jax.lax.scan(step, (jnp.zeros((dim, dim), g.dtype), g), jnp.arange(dim))
    return g @ axes.T


def _inverse_factor(precision: Float[Array, "d d M"]) -> Float[Array, "d d M"]:
    """L^-1, where L L' = I + precision[:, :, m] (Cholesky's factorisation), all m side by side.

    Written out because jaxlib's batched LAPACK routines wait for the very threads that they run
    on: two simulations side by side on two cores would never end.
    """
    size = precision.shape[0]
    eye = jnp.broadcast_to(jnp.eye(size, dtype=precision.dtype)[:, :, None], precision.shape)

    def step(carry: tuple[Array, Array], j: Array) -> tuple[tuple[Array, Array], None]:
        left, inverse = carry
        pivot = jnp.sqrt(left[j, j])
        below = (jnp.arange(size) > j)[:, None]
        column = jnp.where(below, left[j] / pivot[None, :], 0)
        row = inverse[j] / pivot[None, :]
        inverse = (inverse - column[:, None] * row[None, :]).at[j].set(row)
        return (left - column[:, None] * column[None, :], inverse), None

    (_, inverse), _ = jax.lax.scan(step, (precision + eye, eye), jnp.arange(size))
    return inverse


def _root(cov: Any, dim: int) -> tuple[Any, Any]:
    """A square root of the covariance `[d, d]`, and the dtype that the covariance came in."""
    given = as_floats("cov", cov, ndim=None)
    if given.shape != (dim, dim):
        raise ValueError(
            f"cov must be [{dim}, {dim}], one row and column per column of features, got shape "
            f"{given.shape}"
        )
    if not is_concrete(given):
        return jnp.linalg.cholesky(given), given.dtype
    require_finite("cov", given)
    host = np.asarray(cov, np.float64)  # not yet rounded to the working precision
    gap = np.max(np.abs(host - host.T))
    if gap > 1e-6 * np.max(np.abs(host)):
        raise ValueError(
            f"cov must be symmetric, got entries that differ from their mirror image by up to "
            f"{gap:.3g}: {host.tolist()}"
        )
    scale = np.sqrt(np.abs(np.diag(host)))
    scale = np.where(scale > 0, scale, 1.0)
    # Judged, and factored, on the scale of correlations: weights may be of any size.
    correlation = (host + host.T) / 2 / np.outer(scale, scale)
    least = np.linalg.eigvalsh(correlation)[0]
    if least <= 10 * dim * np.finfo(float).eps:
        raise ValueError(
            "cov must be positive definite, got one whose correlation matrix has the eigenvalue "
            f"{least:.3g}: {host.tolist()}"
        )
    return scale[:, None] * np.linalg.cholesky(correlation), given.dtype


# ------------------------------------------------------------------ E[max] of up to three Gaussians


def expected_best(means: Any, spread: Any) -> Any:
    """`[...]`: E[max_a X_a] for X = means + spread @ z with z standard normal, up to three arms.

    means: `[..., K]`; spread: `[..., K, r]`. NumPy in, NumPy out (float64); otherwise JAX.

    Two: m_2 + D Phi(D/s) + s phi(D/s), D = m_1 - m_2 and s the standard deviation of X_1 - X_2.
    Three: sum_a m_a P(a is best) + sum over pairs of s_ab phi(D_ab / s_ab) P(the third is lower
    given X_a = X_b) (Afonja, 1972); P(a is best) is a bivariate normal probability, by Owen's T.
    """
    host = isinstance(means, np.ndarray)
    xp: Any = np if host else jnp
    ndtr = scipy.special.ndtr if host else jax.scipy.special.ndtr
    num_arms = means.shape[-1]
    if num_arms == 1:
        return means[..., 0]
    if num_arms == 2:
        gap = means[..., 0] - means[..., 1]
        length, level = _apart(xp, gap, spread[..., 0, :] - spread[..., 1, :])
        return means[..., 1] + gap * ndtr(level) + length * _normal_density(xp, level)
    # Pairs ab, bc, ca along the last axis.
    gap = means - xp.roll(means, -1, axis=-1)
    line = spread - xp.roll(spread, -1, axis=-2)
    # Where the three vary along one line (doses 0, 1 and 3 of a drug), the third's lead at a tie is
    # a quotient of rounding errors. A little noise of each arm's own makes it a number; by the heat
    # equation it adds half its variance times phi(D/s) / s, which is taken off again below.
    own = _shortest(xp, xp.sqrt(xp.sum(line**2, axis=-1))) * np.finfo(means.dtype).eps ** 0.25
    eye = xp.eye(3, dtype=means.dtype).reshape((1,) * (own.ndim - 1) + (3, 3))
    noise = own[..., None] * eye
    line = xp.concatenate([line, noise - xp.roll(noise, -1, axis=-2)], axis=-1)
    length, level = _apart(xp, gap, line)
    lead = _lead(xp, gap, line, length, level)
    back, before = -xp.roll(level, 1, axis=-1), xp.roll(lead, 1, axis=-1)  # a against c, b third
    probability = (ndtr(level) + ndtr(back)) / 2 - xp.where((level < 0) != (back < 0), 0.5, 0.0)
    for h, t in ((level, lead), (back, before)):
        probability = probability - _owens_t(xp, ndtr, xp.where(xp.abs(h) < _TINY, _TINY, h), t)
    added = ((own / length) ** 2 + (xp.roll(own, -1, axis=-1) / length) ** 2) / 2
    bumps = length * _normal_density(xp, level) * (1 - added) * ndtr(lead)
    best = xp.max(means, axis=-1)
    return best + xp.sum((means - best[..., None]) * probability + bumps, axis=-1)


def _apart(xp: Any, gap: Any, line: Any) -> tuple[Any, Any]:
    """Standard deviation of X_a - X_b, and its mean in units of that."""
    length = xp.maximum(xp.sqrt(xp.sum(line**2, axis=-1)), _TINY)
    return length, xp.clip(gap / length, -1e6, 1e6)


def _normal_density(xp: Any, x: Any) -> Any:
    return xp.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)


def _shortest(xp: Any, length: Any) -> Any:
    """Of each arm: how far from the nearer of the other two."""
    return xp.minimum(length, xp.roll(length, 1, axis=-1))


def _lead(xp: Any, gap: Any, line: Any, length: Any, level: Any) -> Any:
    """Of each pair: how far it leads the third arm where it ties, in standard deviations.

    By the difference to the nearer of the pair, so that nothing cancels where two arms agree.
    """
    after, before = xp.roll(gap, -1, axis=-1), -xp.roll(gap, 1, axis=-1)  # b - c and a - c
    near = xp.roll(length, -1, axis=-1) <= xp.roll(length, 1, axis=-1)
    gap = xp.where(near, after, before)
    other = xp.where(near[..., None], xp.roll(line, -1, axis=-2), -xp.roll(line, 1, axis=-2))
    unit = line / length[..., None]
    share = xp.sum(other * unit, axis=-1)
    rest = xp.sqrt(xp.sum((other - share[..., None] * unit) ** 2, axis=-1))
    return xp.clip((gap - share * level) / xp.maximum(rest, _TINY), -1e6, 1e6)


def _owens_t(xp: Any, ndtr: Any, h: Any, t: Any) -> Any:
    """Owen's T(h, t / h), h not 0, to about 1e-13: its integral where |t| <= |h|, by symmetry else.

    T(h, a) = 1 / (2 pi) int_0^a exp(-h^2 (1 + x^2) / 2) / (1 + x^2) dx.
    """
    small, large = xp.minimum(xp.abs(h), xp.abs(t)), xp.maximum(xp.abs(h), xp.abs(t))
    a = small / large
    nodes = xp.asarray((_NODES + 1) / 2, dtype=h.dtype).reshape((1,) * h.ndim + (-1,))
    bend = 1 + (a[..., None] * nodes) ** 2
    heights = xp.exp(-(large[..., None] ** 2) * bend / 2) / bend
    value = heights @ xp.asarray(_WEIGHTS / 2, dtype=h.dtype) * a / (2 * np.pi)
    beyond, under = ndtr(-xp.abs(h)), ndtr(-xp.abs(t))
    swapped = (beyond + under) / 2 - beyond * under - value
    value = xp.where(xp.abs(t) <= xp.abs(h), value, swapped)
    return xp.where((t < 0) != (h < 0), -value, value)
