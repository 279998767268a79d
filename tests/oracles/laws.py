"""Exact laws of conjugate arms by plain sums and adaptive quadrature, one arm per object.

Each arm knows the law of its mean mu and the law of mu_hat_n, the posterior mean after n rewards,
both seen from the prior. A law is `Atoms` (a sum) or `Density` (a CDF and break points for the
quadrature). Bounds of independent arms follow from the law of a maximum:

    W^TS = T E[max_a mu_a],  W^FH = T E[max_a mu_hat_{a,T-1}],  W^FF = sum_t E[max_a mu_hat_{a,t-1}]

With a delay d a reward is known before the decision d + 1 periods later: T - 1 becomes
(T - 1 - d)+ and t - 1 becomes (t - 1 - d)+, per arm if the delays differ.
"""

import itertools
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import integrate, special, stats

TOLERANCE = {"epsabs": 1e-13, "epsrel": 1e-12, "limit": 500}
ACCEPTED = 1e-9  # a quadrature that cannot promise this raises
QUANTILES = (1e-12, 1e-6, 0.001, 0.1, 0.5, 0.9, 0.999, 1 - 1e-6, 1 - 1e-12)


@dataclass
class Atoms:
    """A discrete law: `points` and `weights`, both `[m]`."""

    points: np.ndarray
    weights: np.ndarray

    def __post_init__(self):
        order = np.argsort(self.points, kind="stable")
        self.points = np.asarray(self.points, float)[order]
        self.weights = np.asarray(self.weights, float)[order]
        self._total = np.concatenate([[0.0], np.cumsum(self.weights)])

    def cdf(self, x):
        """P(X <= x)."""
        return self._total[np.searchsorted(self.points, x, side="right")]

    def sf(self, x):
        """P(X > x)."""
        return 1 - self.cdf(x)

    @property
    def breaks(self):
        """Where the CDF is not smooth."""
        return list(self.points)

    low = property(lambda self: self.points[0])
    high = property(lambda self: self.points[-1])


@dataclass
class Density:
    """A continuous law: `cdf` and `sf` = 1 - cdf (which keeps the digits of the upper tail),
    support [low, high], and `breaks` that guide the quadrature."""

    cdf: object
    sf: object
    low: float
    high: float
    breaks: list


def _density(frozen, cdf, sf):
    """A frozen scipy law; `cdf`, `sf` are its functions without scipy.stats' cost per call."""
    low, high = frozen.support()
    breaks = [float(q) for q in frozen.ppf(QUANTILES)]
    return Density(cdf, sf, float(low), float(high), breaks)


def _normal(mean, sd):
    return _density(
        stats.norm(mean, sd),
        lambda x: special.ndtr((x - mean) / sd),
        lambda x: special.ndtr((mean - x) / sd),
    )


def _student(freedom, mean, scale):
    return _density(
        stats.t(freedom, mean, scale),
        lambda x: special.stdtr(freedom, (x - mean) / scale),
        lambda x: special.stdtr(freedom, (mean - x) / scale),
    )


def _quad(function, low, high):
    value, error = integrate.quad(function, low, high, full_output=1, **TOLERANCE)[:2]
    if error > ACCEPTED * max(1.0, abs(value)):
        raise ArithmeticError(f"quadrature on ({low}, {high}): error {error} at {value}")
    return value


def _integral(function, low, high, breaks):
    """Sum of `quad` over the pieces between the break points inside (low, high)."""
    cuts = [low, *sorted({b for b in breaks if low < b < high}), high]
    return sum(_quad(function, a, b) for a, b in itertools.pairwise(cuts))


def expected_maximum(laws):
    """E[max of independent X_a] for a list of `Atoms` and `Density`."""
    if all(isinstance(law, Atoms) for law in laws):
        points = np.unique(np.concatenate([law.points for law in laws]))
        below = np.prod([law.cdf(points) for law in laws], axis=0)
        return float(points @ np.diff(below, prepend=0.0))
    breaks = [b for law in laws for b in law.breaks]
    low, high = max(law.low for law in laws), max(law.high for law in laws)

    def below(x):
        return math.prod(float(law.cdf(x)) for law in laws)

    def above(x):
        tails = [float(law.sf(x)) for law in laws]
        return 1.0 if max(tails) >= 1 else -math.expm1(sum(math.log1p(-tail) for tail in tails))

    # E[X] = c + int_c^inf P(X > x) dx - int_-inf^c P(X <= x) dx, at any c.
    centre = min(max(float(np.median(breaks)), low), high)
    upper = _integral(above, centre, high, breaks)
    return centre + upper - _integral(below, low, centre, breaks)


class Arm:
    """Base of the families: `mean()`, `mean_law()` and `predictive_law(n)` are theirs.

    Fields stand in the order of the belief's; `common` names those that all arms share.
    """

    common: ClassVar[tuple] = ()

    def cdf(self, x):
        """P(mu <= x)."""
        return float(self.mean_law().cdf(x))

    def expected_max(self, lam):
        """E[max(mu, lam)]."""
        law = self.mean_law()
        if lam >= law.high:
            return float(lam)
        if lam <= law.low:
            return self.mean()
        return lam + _integral(lambda x: float(law.sf(x)), lam, law.high, law.breaks)


@dataclass
class BetaBernoulli(Arm):
    """mu ~ Beta(alpha, beta), reward ~ Bernoulli(mu)."""

    alpha: float
    beta: float

    def mean(self):
        """Prior mean of mu."""
        return self.alpha / (self.alpha + self.beta)

    def mean_law(self):
        """Law of mu."""
        a, b = self.alpha, self.beta
        return _density(
            stats.beta(a, b),
            lambda x: special.betainc(a, b, min(max(x, 0), 1)),
            lambda x: special.betaincc(a, b, min(max(x, 0), 1)),
        )

    def predictive_law(self, n):
        """Law of mu_hat_n: (alpha + S)/(alpha + beta + n), S ~ BetaBinomial(n, alpha, beta)."""
        wins = np.arange(n + 1)
        s = wins[:-1]  # ratios of successive probabilities keep more digits than log-Gammas
        log_ratio = np.log((n - s) * (self.alpha + s) / ((s + 1) * (self.beta + n - s - 1)))
        weights = special.softmax(np.concatenate([[0.0], np.cumsum(log_ratio)]))
        return Atoms((self.alpha + wins) / (self.alpha + self.beta + n), weights)

    def posterior(self, rewards):
        """The arm after these rewards `[n]`."""
        wins = float(np.sum(rewards))
        return BetaBernoulli(self.alpha + wins, self.beta + len(rewards) - wins)


@dataclass
class NormalNormal(Arm):
    """mu ~ N(mean, sd^2), reward ~ N(mu, noise_sd^2)."""

    prior_mean: float
    sd: float
    noise_sd: float

    def mean(self):
        """Prior mean of mu."""
        return self.prior_mean

    def mean_law(self):
        """Law of mu."""
        return _normal(self.prior_mean, self.sd)

    def predictive_law(self, n):
        """Law of mu_hat_n: normal, its variance is what n rewards take off sd^2."""
        if n == 0:
            return Atoms([self.prior_mean], [1.0])
        left = 1 / (1 / self.sd**2 + n / self.noise_sd**2)
        return _normal(self.prior_mean, math.sqrt(self.sd**2 - left))

    def posterior(self, rewards):
        """The arm after these rewards `[n]`."""
        precision = 1 / self.sd**2 + len(rewards) / self.noise_sd**2
        total = self.prior_mean / self.sd**2 + np.sum(rewards) / self.noise_sd**2
        return NormalNormal(float(total / precision), precision**-0.5, self.noise_sd)


@dataclass
class GammaPoisson(Arm):
    """theta ~ Gamma(shape, rate), reward ~ Poisson(theta), mu = theta."""

    shape: float
    rate: float

    def mean(self):
        """Prior mean of mu."""
        return self.shape / self.rate

    def mean_law(self):
        """Law of mu."""
        return _density(
            stats.gamma(self.shape, scale=1 / self.rate),
            lambda x: special.gammainc(self.shape, self.rate * max(x, 0)),
            lambda x: special.gammaincc(self.shape, self.rate * max(x, 0)),
        )

    def predictive_law(self, n):
        """Law of mu_hat_n: (shape + S)/(rate + n), S negative binomial, cut where no mass is."""
        if n == 0:
            return Atoms([self.shape / self.rate], [1.0])
        law = stats.nbinom(self.shape, self.rate / (self.rate + n))
        total = np.arange(int(law.isf(1e-17)) + 2)
        return Atoms((self.shape + total) / (self.rate + n), law.pmf(total))

    def posterior(self, rewards):
        """The arm after these rewards `[n]`."""
        return GammaPoisson(self.shape + float(np.sum(rewards)), self.rate + len(rewards))


@dataclass
class GammaExponential(Arm):
    """theta ~ Gamma(shape, rate), reward ~ Exponential(rate theta), mu = 1/theta; shape > 1."""

    shape: float
    rate: float

    def mean(self):
        """Prior mean of mu."""
        return self.rate / (self.shape - 1)

    def mean_law(self):
        """Law of mu."""
        return _density(
            stats.invgamma(self.shape, scale=self.rate),
            lambda x: special.gammaincc(self.shape, self.rate / x) if x > 0 else 0.0,
            lambda x: special.gammainc(self.shape, self.rate / x) if x > 0 else 1.0,
        )

    def predictive_law(self, n):
        """Law of mu_hat_n: (rate + S)/(shape + n - 1), S/rate ~ BetaPrime(n, shape)."""
        scale = self.rate / (self.shape + n - 1)
        if n == 0:
            return Atoms([scale], [1.0])

        def share(x):  # S / (rate + S) ~ Beta(n, shape)
            return max(1 - scale / x, 0.0) if x > 0 else 0.0

        return _density(
            stats.betaprime(n, self.shape, loc=scale, scale=scale),
            lambda x: special.betainc(n, self.shape, share(x)),
            lambda x: special.betainc(self.shape, n, min(scale / x, 1.0)) if x > 0 else 1.0,
        )

    def posterior(self, rewards):
        """The arm after these rewards `[n]`."""
        return GammaExponential(self.shape + len(rewards), self.rate + float(np.sum(rewards)))


@dataclass
class NormalInverseGamma(Arm):
    """sigma^2 ~ InvGamma(shape, rate), mu ~ N(mean, sigma^2/precision), reward ~ N(mu, sigma^2)."""

    prior_mean: float
    precision: float
    shape: float
    rate: float

    def mean(self):
        """Prior mean of mu."""
        return self.prior_mean

    def mean_law(self):
        """Law of mu: Student t with 2 shape degrees of freedom."""
        scale = math.sqrt(self.rate / (self.shape * self.precision))
        return _student(2 * self.shape, self.prior_mean, scale)

    def predictive_law(self, n):
        """Law of mu_hat_n: given sigma, normal of variance sigma^2 n/(precision(precision + n))."""
        if n == 0:
            return Atoms([self.prior_mean], [1.0])
        share = n / (self.precision * (self.precision + n))
        scale = math.sqrt(self.rate / self.shape * share)
        return _student(2 * self.shape, self.prior_mean, scale)

    def posterior(self, rewards):
        """The arm after these rewards `[n]`."""
        n, average = len(rewards), float(np.mean(rewards))
        precision = self.precision + n
        spread = float(np.sum((np.asarray(rewards) - average) ** 2))
        shift = self.precision * n * (average - self.prior_mean) ** 2 / precision
        return NormalInverseGamma(
            (self.precision * self.prior_mean + n * average) / precision,
            precision,
            self.shape + n / 2,
            self.rate + (spread + shift) / 2,
        )


def dirichlet_mean_cdf(alpha, values, x):
    """P(sum_c values_c p_c <= x) for p ~ Dirichlet(alpha); alpha, values `[C]`, x a number.

    p is a vector of independent Gammas over their sum, so the event is
    sum_c (values_c - x) G_c <= 0; invert the characteristic function of that sum (Gil-Pelaez).
    """
    alpha, values = np.asarray(alpha, float), np.asarray(values, float)
    if x >= values.max():
        return 1.0
    if x < values.min():
        return 0.0
    weights = values - x
    if len(alpha) == 2:
        top = int(np.argmax(values))
        share = (x - values[1 - top]) / (values[top] - values[1 - top])
        return float(special.betainc(alpha[top], alpha[1 - top], share))

    def integrand(u):
        # t = tan(u) / size maps (0, inf) to (0, pi/2); dt/t = du / (sin u cos u)
        if u == 0.0:
            return float(alpha @ weights) / size
        t = math.tan(u) / size
        angle = sum(a * math.atan(w * t) for a, w in terms)
        damping = sum(a * math.log1p((w * t) ** 2) for a, w in terms) / 2
        return math.sin(angle) * math.exp(-damping) / (math.sin(u) * math.cos(u))

    size = float(np.abs(weights).max())
    terms = list(zip(alpha.tolist(), weights.tolist(), strict=True))
    half_turn = _quad(integrand, 0, math.pi / 2)
    return min(max(0.5 - half_turn / math.pi, 0.0), 1.0)


def dirichlet_mean_cdf_by_sticks(alpha, values, x):
    """The same probability by breaking sticks: p_0 ~ Beta, the rest a scaled Dirichlet."""
    alpha, values = [float(a) for a in alpha], [float(v) for v in values]
    if len(alpha) == 1:
        return float(values[0] <= x)
    if len(alpha) == 2:
        return dirichlet_mean_cdf(alpha, values, x)
    law = stats.beta(alpha[0], sum(alpha[1:]))

    def integrand(level):
        p = float(law.ppf(level))
        if p >= 1.0:
            return float(values[0] <= x)
        return dirichlet_mean_cdf_by_sticks(alpha[1:], values[1:], (x - values[0] * p) / (1 - p))

    return integrate.quad(integrand, 0, 1, epsabs=1e-11, epsrel=1e-11, limit=500)[0]


@dataclass
class DirichletCategorical(Arm):
    """p ~ Dirichlet(alpha), reward values[c] with probability p_c; alpha, values are `[C]`."""

    common: ClassVar[tuple] = ("values",)
    alpha: tuple
    values: tuple

    def mean(self):
        """Prior mean of mu."""
        return float(np.dot(self.alpha, self.values) / np.sum(self.alpha))

    def mean_law(self):
        """Law of mu = values @ p."""
        values = sorted(float(v) for v in self.values)
        return Density(
            lambda x: dirichlet_mean_cdf(self.alpha, self.values, x),
            lambda x: 1 - dirichlet_mean_cdf(self.alpha, self.values, x),
            values[0],
            values[-1],
            values,
        )

    def predictive_law(self, n):
        """Law of mu_hat_n: a sum over all compositions of n into C counts."""
        alpha = np.asarray(self.alpha, float)
        total = alpha.sum()
        counts = np.array(list(_compositions(n, len(alpha))))
        log_p = special.gammaln(n + 1) - special.gammaln(counts + 1).sum(axis=1)
        log_p += special.gammaln(total) - special.gammaln(total + n)
        log_p += (special.gammaln(alpha + counts) - special.gammaln(alpha)).sum(axis=1)
        points = (alpha + counts) @ np.asarray(self.values, float) / (total + n)
        return Atoms(points, np.exp(log_p))

    def posterior(self, rewards):
        """The arm after these rewards `[n]`."""
        hits = [sum(1 for r in rewards if r == v) for v in self.values]
        after = tuple(a + h for a, h in zip(self.alpha, hits, strict=True))
        return DirichletCategorical(after, self.values)


def _compositions(total, parts):
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _compositions(total - first, parts - 1):
            yield (first, *rest)


# --- quantities of several independent arms -----------------------------------------------


def expected_max_mean(arms):
    """E[max_a mu_a] for a list of arms."""
    return expected_maximum([arm.mean_law() for arm in arms])


def expected_max_predictive(arms, n):
    """E[max_a mu_hat_{a,n}]; n a number, or one per arm."""
    each = np.broadcast_to(n, len(arms))
    return expected_maximum([arm.predictive_law(int(m)) for arm, m in zip(arms, each, strict=True)])


def w_ts(arms, horizon):
    """W^TS; a delay does not change it."""
    return horizon * expected_max_mean(arms)


def w_fh(arms, horizon, delay=0):
    """W^FH; delay a number, or one per arm."""
    seen = np.maximum(horizon - 1 - np.asarray(delay), 0)
    return horizon * expected_max_predictive(arms, seen)


def w_ff(arms, horizon, delay=0, survival=None):
    """W^FF; delay a number, or one per arm; survival gamma_t `[horizon]`, 1 if not given."""
    gamma = np.ones(horizon) if survival is None else survival
    return sum(
        gamma[t - 1] * expected_max_predictive(arms, np.maximum(t - 1 - np.asarray(delay), 0))
        for t in range(1, horizon + 1)
    )
