"""Draws from a prior out of uniform numbers, so that quasi-random sets can be pushed through it.

NumPyro's own inverses of the incomplete beta and gamma functions need TensorFlow Probability, and
expanded distributions have none, so the ones arms are made of are here. Where the parameters are
constants the inverse is tabulated once on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import betainc, expit, gammainc, gammaincc, gammaln, logit, ndtri
from jaxtyping import Array, Float

from irsppl.models._distributions import WRAPPERS, Distribution, in_support, is_discrete


class NoInverse(Exception):
    """The distribution has no map from uniforms to draws."""


class Uniforms:
    """A vector of uniforms, handed out in order; each is used once."""

    def __init__(self, u: Float[Array, " n"] | None):
        self.u = u  # None: only count
        self.used = 0

    def take(self, shape: tuple[int, ...]) -> Array:
        size = int(np.prod(shape, dtype=int))
        start, self.used = self.used, self.used + size
        if self.u is None:
            return jnp.full(shape, 0.5)
        eps = jnp.finfo(self.u.dtype).eps
        # 0 and 1 would give infinite draws.
        return jnp.clip(self.u[start : start + size], eps**2, 1 - eps / 2).reshape(shape)


# ---- constant parameters: a table of the inverse CDF, made on the host with SciPy
class Table:
    """Inverse CDFs of constant laws, one per element, on a scale where they are smooth.

    Cubic Hermite interpolation in the normal score t of u, of the logit (beta), log (gamma and its
    inverse), arcsinh (Student t) or value (normal) y of the quantile: relative error below 1e-6 for
    u from 1e-15 to 1 - 1e-15. `components` > 0 stands for mixtures, components in the last axis of
    each parameter, the weights first.
    """

    def __init__(self, kind: str, parameters: list[np.ndarray], components: int = 0):
        self.kind = kind
        size = max(components, 1)
        rows = np.stack([np.asarray(p, np.float64).reshape(-1, size) for p in parameters], axis=1)
        if np.all(rows == rows[0]):
            rows = rows[:1]
        make = self._mixture if components else self._single
        columns = [make(*row) for row in rows]
        # [rows, nodes] each
        self.t, self.y, self.slope = (np.stack(part) for part in zip(*columns, strict=True))

    def _single(self, *parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        from scipy import interpolate, special

        t = np.linspace(-8.0, 8.0, 401)
        tail = special.ndtr(-np.abs(t))  # the smaller of u and 1 - u keeps its precision
        a, b = (float(p[0]) for p in (*parameters, parameters[0])[:2])
        with np.errstate(all="ignore"):
            if self.kind == "beta":
                y = np.where(t < 0, _beta_logits(a, b, tail), -_beta_logits(b, a, tail))
            elif self.kind == "student":
                y = -np.sign(t) * np.arcsinh(special.stdtrit(a, tail))
            else:
                y = np.log(
                    np.where(t < 0, special.gammaincinv(a, tail), special.gammainccinv(a, tail))
                )
                y = y if self.kind == "gamma" else -y[::-1]
        if not (np.all(np.isfinite(y)) and np.all(np.diff(y) > 0)):
            raise NoInverse
        return t, y, interpolate.CubicSpline(t, y)(t, 1)

    def _mixture(
        self, weights: np.ndarray, *parameters: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Nodes even in the score and in y: between two humps the quantile all but jumps."""
        from scipy import special

        parts = [p[:, None] for p in parameters]

        def law(y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            """Mass below, mass above, density, all on the scale of y."""
            if self.kind == "beta":
                a, b = parts
                x, rest = special.expit(y), special.expit(-y)
                below, above = special.betainc(a, b, x), special.betainc(b, a, rest)
                log_density = a * np.log(x) + b * np.log(rest) - special.betaln(a, b)
            elif self.kind == "gamma":
                a, x = parts[0], np.exp(y) * parts[1]
                below, above = special.gammainc(a, x), special.gammaincc(a, x)
                log_density = a * np.log(x) - x - special.gammaln(a)
            else:
                score = (y - parts[0]) / parts[1]
                below, above = special.ndtr(score), special.ndtr(-score)
                log_density = -0.5 * (score**2 + np.log(2 * np.pi)) - np.log(parts[1])
            return weights @ below, weights @ above, weights @ np.exp(log_density)

        with np.errstate(all="ignore"):
            t = np.linspace(-8.0, 8.0, 401)
            reach = np.full(t.shape, 600.0)
            if self.kind == "normal":
                reach = np.max(np.abs(parts[0]) + 9 * parts[1]) + 0 * t
            low, high, tail = -reach, reach, special.ndtr(-np.abs(t))
            for _ in range(60):
                middle = 0.5 * (low + high)
                below, above, _ = law(middle)
                left = np.where(t < 0, below < tail, above > tail)
                low, high = np.where(left, middle, low), np.where(left, high, middle)
            y = 0.5 * (low + high)
            y = np.sort(np.concatenate([y, np.linspace(y[0], y[-1], 1601)[1:-1]]))
            below, above, density = law(y)
            t = np.where(below < above, special.ndtri(below), -special.ndtri(above))
            slope = np.exp(-0.5 * t**2) / np.sqrt(2 * np.pi) / density
            t = np.maximum.accumulate(t)
            # Steeper slopes than three times the secants would overshoot.
            secant = np.diff(y) / np.maximum(np.diff(t), 1e-12)
            cap = 3 * np.minimum(np.append(secant, np.inf), np.insert(secant, 0, np.inf))
            slope = np.where(np.isfinite(slope), np.minimum(slope, cap), cap)
        if not (np.all(np.isfinite(y)) and np.all(np.isfinite(t)) and np.all(slope >= 0)):
            raise NoInverse
        return t, y, slope

    def __call__(self, u: Array) -> Array:
        """Quantiles at u `[...]`, whose flattened elements match the table's rows."""
        flat = u.reshape(-1)
        score = jnp.clip(ndtri(flat), -8.0, 8.0)
        if self.t.shape[0] > 1:
            rows, find = jnp.arange(flat.shape[0]), jax.vmap(jnp.searchsorted)
            place = find(jnp.asarray(self.t, flat.dtype), score)
        else:
            rows = jnp.zeros(flat.shape, int)
            place = jnp.searchsorted(jnp.asarray(self.t[0], flat.dtype), score)
        left = jnp.clip(place - 1, 0, self.t.shape[1] - 2)
        # Differences are taken in double precision, on the host.
        start, step = self.t[:, :-1], np.maximum(np.diff(self.t, axis=1), 1e-12)
        rise, d0, d1 = np.diff(self.y, axis=1), self.slope[:, :-1] * step, self.slope[:, 1:] * step

        def at(table: np.ndarray) -> Array:
            return jnp.asarray(table, flat.dtype)[rows, left]

        s = jnp.clip((score - at(start)) / at(step), 0, 1)
        bend = s * (1 - s) * (at(d0) * (1 - s) - at(d1) * s)
        value = at(self.y[:, :-1]) + at(rise) * s**2 * (3 - 2 * s) + bend
        return self._back(value).reshape(u.shape)

    def _back(self, y: Array) -> Array:
        if self.kind == "beta":
            return _inside_unit(y)
        if self.kind == "normal":
            return y
        if self.kind != "student":
            return jnp.maximum(jnp.exp(y), jnp.finfo(y.dtype).tiny)
        return jnp.sinh(y)


def _beta_logits(a: float, b: float, u: np.ndarray) -> np.ndarray:
    """Logits of the u-quantiles of Beta(a, b), small u, on the host."""
    from scipy import special

    y = special.logit(special.betaincinv(a, b, u))
    # SciPy's root finder gives up now and then, far out.
    bad = ~(np.abs(np.log(special.betainc(a, b, special.expit(y)) / u)) < 1e-9)
    low, high = np.full(bad.sum(), -700.0), np.full(bad.sum(), 700.0)
    for _ in range(64):
        middle = 0.5 * (low + high)
        below = special.betainc(a, b, special.expit(middle)) < u[bad]
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    y[bad] = 0.5 * (low + high)
    return y


def _inside_unit(y: Array) -> Array:
    """Inverse logit kept off 0 and 1, where densities and logits are infinite."""
    info = jnp.finfo(y.dtype)
    return jnp.clip(expit(y), info.tiny, 1 - info.eps / 2)


# ---- parameters that depend on other latents: bisection, traceable
_STEPS = 30


def _bisect(below: Any, low: Array, high: Array) -> Array:
    def step(_: int, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = 0.5 * (low + high)
        under = below(middle)
        return jnp.where(under, middle, low), jnp.where(under, high, middle)

    low, high = jax.lax.fori_loop(0, _STEPS + 20 * (low.dtype == jnp.float64), step, (low, high))
    return 0.5 * (low + high)


def gamma_icdf(a: Array, u: Array, upper: bool = False) -> Array:
    """Quantile of Gamma(a, 1), elementwise; `upper`: where u is the probability above it."""
    a, u = jnp.broadcast_arrays(a, u)
    under, over = (1 - u, u) if upper else (u, 1 - u)
    # P(a, x) <= x^a / Gamma(a + 1) bounds the quantile from below.
    low = (jnp.log(under) + gammaln(a + 1)) / a - 1e-3
    high = jnp.log(a + 12 * jnp.sqrt(a) + 80)

    def below(y: Array) -> Array:
        x = jnp.exp(y)
        return jnp.where(under < over, gammainc(a, x) < under, gammaincc(a, x) > over)

    y = _bisect(below, jnp.minimum(low, high), high)
    return jnp.maximum(jnp.exp(y), jnp.finfo(u.dtype).tiny)


def beta_logit_icdf(a: Array, b: Array, u: Array) -> Array:
    """Logit of the quantile of Beta(a, b), elementwise."""
    a, b, u = jnp.broadcast_arrays(a, b, u)
    reach = jnp.full(u.shape, -float(np.log(jnp.finfo(u.dtype).tiny)) - 1, u.dtype)

    def below(y: Array) -> Array:
        cdf = betainc(a, b, expit(y))
        above = betainc(b, a, expit(-y))
        return jnp.where(y < 0, cdf < u, above > 1 - u)

    return _bisect(below, -reach, reach)


# ---- the map itself
def tables_for(kind: type, constants: dict[str, np.ndarray]) -> Table | None:
    """Tables for a law whose parameters are known constants, or None where none are needed.

    constants: the parameters of the unwrapped law, each in the full shape of the site's batch. For
    a mixture those of its components, of type `kind`, and their "weights", components last.
    """
    weights = constants.get("weights")
    try:
        if weights is not None and kind in _MIXED:
            name, *keys = _MIXED[kind]
            return Table(name, [weights, *(constants[key] for key in keys)], weights.shape[-1])
        if weights is None and kind in _SINGLE:
            name, *keys = _SINGLE[kind]
            return Table(name, [constants[key] for key in keys])
        if weights is None and kind is dist.Dirichlet:
            alpha = constants["concentration"].reshape(-1, constants["concentration"].shape[-1])
            rest = np.cumsum(alpha[:, ::-1], axis=1)[:, ::-1]
            return Table("beta", [alpha[:, :-1], rest[:, 1:]])
    except NoInverse:
        pass
    return None


# Name of the table, and the parameters it takes.
_SINGLE = {
    dist.Beta: ("beta", "concentration1", "concentration0"),
    dist.Gamma: ("gamma", "concentration"),
    dist.StudentT: ("student", "df"),
    dist.InverseGamma: ("inverse gamma", "concentration"),
}
_MIXED = {
    dist.Beta: _SINGLE[dist.Beta],
    dist.Gamma: ("gamma", "concentration", "rate"),
    dist.Normal: ("normal", "loc", "scale"),
}


_Take = Callable[[tuple[int, ...]], Array]  # uniforms of a shape


def draw(fn: Distribution, take: _Take, table: Table | None, values: np.ndarray | None) -> Array:
    """A draw of `fn` in its full shape, measure-preserving in the uniforms it takes.

    table: inverse CDFs of the law inside, in the element order of `fn`. values: what a discrete law
    can give, in rising order, or what it gives but for a negligible probability.
    """
    with jax.numpy_rank_promotion("allow"):  # scalar laws meet the shape of the uniforms
        return jnp.broadcast_to(_draw(fn, fn.shape(), take, table, values), fn.shape())


def _draw(
    fn: Distribution, shape: tuple[int, ...], take: _Take, table: Table | None, values: Any
) -> Array:
    """`shape` is the full shape of the draw, which expansions have made larger than fn.shape()."""
    if isinstance(fn, WRAPPERS):
        return _draw(fn.base_dist, shape, take, table, values)
    if is_discrete(fn):
        if fn.event_shape:
            raise NoInverse
        return _draw_discrete(fn, take(shape), values)
    if isinstance(fn, dist.Dirichlet):
        return _draw_dirichlet(fn, shape, take, table)
    if isinstance(fn, dist.MultivariateNormal):
        scores = ndtri(take(shape))
        return fn.loc + jnp.squeeze(fn.scale_tril @ scores[..., None], axis=-1)
    if isinstance(fn, (dist.MixtureSameFamily, dist.MixtureGeneral)):
        return _draw_mixture(fn, shape, take, table)
    if isinstance(fn, dist.InverseGamma):
        u = take(shape)
        if table is not None:
            return fn.rate * table(u)
        return fn.rate / gamma_icdf(fn.concentration, u, upper=True)
    if isinstance(fn, dist.TransformedDistribution) and not isinstance(fn, dist.FoldedDistribution):
        base_shape = shape[: len(shape) - len(fn.shape())] + fn.base_dist.shape()
        if len(shape) == len(fn.shape()) and not fn.event_shape and not fn.base_dist.event_shape:
            base_shape = shape  # an expansion may have stretched inner axes
        value = _draw(fn.base_dist, base_shape, take, None, None)
        for transform in fn.transforms:
            value = transform(value)
        return value
    if fn.event_shape:
        raise NoInverse
    return _icdf(fn, take(shape), table)


def _icdf(fn: Distribution, u: Array, table: Table | None = None) -> Array:
    """Inverse CDF of a univariate continuous law, elementwise."""
    kind = type(fn)
    if isinstance(fn, dist.Beta):  # BetaProportion and the like, too
        if table is not None:
            return table(u)
        return _inside_unit(beta_logit_icdf(fn.concentration1, fn.concentration0, u))
    if kind is dist.Gamma:
        return (table(u) if table is not None else gamma_icdf(fn.concentration, u)) / fn.rate
    if kind is dist.StudentT:
        if table is not None:
            return fn.loc + fn.scale * table(u)
        y = beta_logit_icdf(0.5 * fn.df, jnp.asarray(0.5, u.dtype), 2 * jnp.minimum(u, 1 - u))
        standard = jnp.sign(u - 0.5) * jnp.sqrt(fn.df * jnp.exp(-y))
        return fn.loc + fn.scale * standard
    if kind is dist.Chi2:
        return 2 * gamma_icdf(0.5 * fn.df, u)
    if kind is dist.Weibull:
        return fn.scale * (-jnp.log1p(-u)) ** (1 / fn.concentration)
    if kind is dist.Kumaraswamy:
        a, b = fn.concentration1, fn.concentration0
        return (-jnp.expm1(jnp.log1p(-u) / b)) ** (1 / a)
    try:
        return fn.icdf(u)
    except (NotImplementedError, ImportError, AttributeError) as error:
        raise NoInverse from error


def _draw_dirichlet(
    fn: dist.Dirichlet, shape: tuple[int, ...], take: _Take, table: Table | None
) -> Array:
    alpha = jnp.broadcast_to(fn.concentration, shape)
    u = take((*shape[:-1], shape[-1] - 1))
    # Stick-breaking: the share of what is left is Beta(alpha_c, sum of the later alphas).
    if table is not None:
        y = logit(table(u))
    else:
        rest = jnp.flip(jnp.cumsum(jnp.flip(alpha, -1), -1), -1)
        y = beta_logit_icdf(alpha[..., :-1], rest[..., 1:], u)
    log_share, log_left = jax.nn.log_sigmoid(y), jnp.cumsum(jax.nn.log_sigmoid(-y), -1)
    pad = [(0, 0)] * (y.ndim - 1)
    value = jnp.exp(jnp.pad(log_share, [*pad, (0, 1)]) + jnp.pad(log_left, [*pad, (1, 0)]))
    value = jnp.maximum(value, jnp.finfo(value.dtype).tiny)
    return value / value.sum(-1, keepdims=True)


def _draw_mixture(fn: Any, shape: tuple[int, ...], take: _Take, table: Table | None) -> Array:
    if fn.event_shape:
        raise NoInverse
    u = take(shape)
    if table is not None:
        return table(u)
    # The mixture's quantile lies between those of its components.
    size = fn.mixture_size
    if isinstance(fn, dist.MixtureSameFamily):
        component = fn.component_distribution
        while isinstance(component, dist.ExpandedDistribution):
            component = component.base_dist
        each = _univariate(component, jnp.broadcast_to(u[..., None], (*shape, size)))
    else:
        each = jnp.stack([_univariate(c, u) for c in fn.component_distributions], -1)
    try:
        return _bisect(lambda x: fn.cdf(x) < u, jnp.min(each, -1), jnp.max(each, -1))
    except NotImplementedError as error:
        raise NoInverse from error


def icdf(fn: Distribution, u: Array) -> Array:
    """Inverse CDF of a scalar continuous law at any levels u, or `NoInverse`."""
    if fn.shape() != () or isinstance(fn, (dist.MixtureSameFamily, dist.MixtureGeneral)):
        raise NoInverse
    return _univariate(fn, u)


def _univariate(fn: Distribution, u: Array) -> Array:
    if is_discrete(fn):
        raise NoInverse
    return _draw(fn, u.shape, lambda shape: u, None, None)


def _draw_discrete(fn: Distribution, u: Array, values: np.ndarray | None) -> Array:
    if values is None:
        raise NoInverse
    support = jnp.asarray(values)
    each = support.reshape((-1,) + (1,) * u.ndim)
    probs = jnp.where(in_support(fn, each), jnp.exp(fn.log_prob(each)), 0.0)  # [J, ...]
    cdf = jnp.cumsum(jnp.broadcast_to(probs, (support.shape[0], *u.shape)), axis=0)
    # Scaled by the total: what the list leaves out is spread over it, and rounding cannot overrun.
    return support[jnp.sum(u[None] * cdf[-1:] >= cdf[:-1], axis=0)]
