"""Beliefs over rewards that take finitely many values, as `enumerate.py` needs them."""

import functools
import itertools
import math

import numpy as np
from scipy import integrate, special

from .laws import dirichlet_mean_cdf


def tanh_sinh(low, high, step=1 / 24, reach=3.3):
    """Fixed nodes and weights on [low, high], good with singular ends. Both are `[m]`."""
    grid = np.arange(-int(reach / step), int(reach / step) + 1) * step
    nodes = 0.5 * (1 + np.tanh(0.5 * np.pi * np.sinh(grid)))
    weights = step * 0.25 * np.pi * np.cosh(grid) / np.cosh(0.5 * np.pi * np.sinh(grid)) ** 2
    return low + (high - low) * nodes, (high - low) * weights


class _Belief:
    """What an enumeration asks of a belief: see the methods of `BetaBernoulli`."""

    num_arms: int
    values: tuple

    def __init__(self):
        self.means = functools.cache(self._means)
        self.predictive = functools.cache(self._predictive)
        self.expected_max = functools.cache(self._expected_max)

    def empty(self):
        """Counts of no data at all."""
        return ((0,) * len(self.values),) * self.num_arms

    def count(self, data):
        """Counts of `data`, an iterable of pairs (arm, category)."""
        table = [[0] * len(self.values) for _ in range(self.num_arms)]
        for arm, category in data:
            table[arm][category] += 1
        return tuple(map(tuple, table))


class _IndependentBelief(_Belief):
    """Independent arms: E[max] is the integral of 1 - prod_a F_a on fixed nodes."""

    def _grid(self):
        ends = sorted(set(self.values))
        pieces = [tanh_sinh(low, high) for low, high in itertools.pairwise(ends)]
        return (np.concatenate(part) for part in zip(*pieces, strict=True))

    def _expected_max(self, counts):
        # The nodes are the same for every belief: sum_r p(r) F(x | y, r) = F(x | y) at each node,
        # so E[expected_max(next) | now] = expected_max(now) holds to rounding.
        below = np.ones_like(self._nodes)
        for arm in range(self.num_arms):
            below = below * self._node_cdf(arm, counts[arm])
        return max(self.values) - float(self._weights @ below)


class BetaBernoulli(_IndependentBelief):
    """Independent Bernoulli arms, mean of arm a ~ Beta(alpha_a, beta_a).

    alpha, beta: `[K]`.
    """

    def __init__(self, alpha, beta):
        super().__init__()
        self.alpha = tuple(float(x) for x in alpha)
        self.beta = tuple(float(x) for x in beta)
        self.num_arms = len(self.alpha)
        self.values = (0.0, 1.0)
        self._nodes, self._weights = self._grid()
        self._node_cdf = functools.cache(self._node_cdf)

    def _shape(self, arm, counts):
        failures, successes = counts[arm]
        return self.alpha[arm] + successes, self.beta[arm] + failures

    def probability(self, counts):
        """Prior probability of one particular sequence of rewards with these counts."""
        log_p = 0.0
        for arm in range(self.num_arms):
            log_p += special.betaln(*self._shape(arm, counts))
            log_p -= special.betaln(self.alpha[arm], self.beta[arm])
        return math.exp(log_p)

    def _means(self, counts):
        """Posterior mean of every arm, `[K]`."""
        shapes = [self._shape(arm, counts) for arm in range(self.num_arms)]
        return tuple(a / (a + b) for a, b in shapes)

    def _predictive(self, counts, arm):
        """Law of the next reward of `arm`, `[C]`."""
        a, b = self._shape(arm, counts)
        return (b / (a + b), a / (a + b))

    def _node_cdf(self, arm, row):
        return special.betainc(self.alpha[arm] + row[1], self.beta[arm] + row[0], self._nodes)

    def expected_allocation_max(self, allocations):
        """E[max over rows n of n @ mu] under the prior; `allocations` is `[m, K]`.

        Adaptive quadrature over all arms but the last, over which the maximum is piecewise linear
        and its mean a sum of incomplete Beta functions. Two arms: to 1e-10; three: to 1e-6.
        """
        rows = np.unique(np.asarray(allocations, float), axis=0)
        # means are not negative: an allocation that another one covers can be left out
        rows = np.array([r for r in rows if np.sum(np.all(rows >= r, axis=1)) == 1])
        return self._nested(np.zeros(len(rows)), rows, 0)

    def _nested(self, offset, rows, arm):
        a, b = self.alpha[arm], self.beta[arm]
        if arm == self.num_arms - 1:
            return _mean_of_piecewise_linear(offset, rows[:, arm], a, b)

        def integrand(level):
            mean = special.betaincinv(a, b, level)
            return self._nested(offset + rows[:, arm] * mean, rows, arm + 1)

        # an outer integral cannot be sharper than the inner ones it is made of
        levels = self.num_arms - 1 - arm
        goal = 1e-11 if self.num_arms == 2 else 1e-9 * 10**levels
        value, error = integrate.quad(
            integrand, 0, 1, epsabs=goal, epsrel=goal, limit=400, full_output=1
        )[:2]
        if error > 100 * goal:
            raise ArithmeticError(f"quadrature over arm {arm}: error {error}")
        return value


def _mean_of_piecewise_linear(intercepts, slopes, a, b):
    """E[max_j intercepts_j + slopes_j X] for X ~ Beta(a, b); intercepts, slopes are `[m]`."""
    rise, drop = np.subtract.outer(slopes, slopes), np.subtract.outer(intercepts, intercepts)
    crossings = -drop[rise != 0] / rise[rise != 0]
    inside = crossings[(crossings > 0) & (crossings < 1)]
    cuts = np.unique(np.concatenate([[0.0, 1.0], inside]))
    middle = 0.5 * (cuts[1:] + cuts[:-1])
    best = np.argmax(intercepts + np.multiply.outer(middle, slopes), axis=1)
    mass = np.diff(special.betainc(a, b, cuts))
    first = np.diff(special.betainc(a + 1, b, cuts)) * a / (a + b)
    return float(intercepts[best] @ mass + slopes[best] @ first)


class DirichletCategorical(_IndependentBelief):
    """Independent categorical arms: p_a ~ Dirichlet(alpha_a), reward `values[c]` w.p. p_{a,c}.

    alpha: `[K, C]`; values: `[C]`, distinct.
    """

    def __init__(self, alpha, values):
        super().__init__()
        self.alpha = tuple(tuple(float(x) for x in row) for row in alpha)
        self.values = tuple(float(v) for v in values)
        self.num_arms = len(self.alpha)
        self._nodes, self._weights = self._grid()
        self._node_cdf = functools.cache(self._node_cdf)

    def _posterior(self, arm, counts):
        return np.asarray(self.alpha[arm]) + np.asarray(counts[arm])

    def probability(self, counts):
        """Prior probability of one particular sequence of rewards with these counts."""
        log_p = 0.0
        for arm in range(self.num_arms):
            before, after = np.asarray(self.alpha[arm]), self._posterior(arm, counts)
            log_p += np.sum(special.gammaln(after)) - special.gammaln(after.sum())
            log_p -= np.sum(special.gammaln(before)) - special.gammaln(before.sum())
        return math.exp(log_p)

    def _means(self, counts):
        """Posterior mean of every arm, `[K]`."""
        laws = [self._predictive(counts, arm) for arm in range(self.num_arms)]
        return tuple(sum(p * v for p, v in zip(law, self.values, strict=True)) for law in laws)

    def _predictive(self, counts, arm):
        """Law of the next reward of `arm`, `[C]`."""
        after = self._posterior(arm, counts)
        return tuple(float(x) for x in after / after.sum())

    def _node_cdf(self, arm, row):
        alpha = np.asarray(self.alpha[arm]) + np.asarray(row)
        return np.array([dirichlet_mean_cdf(alpha, self.values, x) for x in self._nodes])

    def expected_allocation_max(self, allocations):
        """Not available: E[max n @ mu] for general Dirichlet arms."""
        raise NotImplementedError("the law of several Dirichlet means under a budget")


class JointDiscrete(_Belief):
    """Correlated arms: theta takes J values, all arms share it.

    prior: `[J]`; likelihood: `[J, K, C]`, law of a reward given theta; values: `[C]`.
    """

    def __init__(self, prior, likelihood, values):
        super().__init__()
        self.prior = np.asarray(prior, float) / np.sum(prior)
        self.likelihood = np.asarray(likelihood, float)
        self.values = tuple(float(v) for v in values)
        self.num_arms = self.likelihood.shape[1]
        self.theta_means = self.likelihood @ np.asarray(self.values)  # [J, K]

    def _joint(self, counts):
        # 0 ** 0 = 1: a category of probability zero that was not seen is no evidence.
        return self.prior * np.prod(self.likelihood ** np.asarray(counts), axis=(1, 2))

    def posterior(self, counts):
        """P(theta_j | data), `[J]`."""
        joint = self._joint(counts)
        return joint / joint.sum()

    def probability(self, counts):
        """Prior probability of one particular sequence of rewards with these counts."""
        return float(self._joint(counts).sum())

    def _means(self, counts):
        """Posterior mean of every arm, `[K]`."""
        return tuple(float(x) for x in self.posterior(counts) @ self.theta_means)

    def _predictive(self, counts, arm):
        """Law of the next reward of `arm`, `[C]`."""
        return tuple(float(x) for x in self.posterior(counts) @ self.likelihood[:, arm, :])

    def _expected_max(self, counts):
        return float(self.posterior(counts) @ self.theta_means.max(axis=1))

    def expected_allocation_max(self, allocations):
        """E[max over rows n of n @ mu] under the prior; `allocations` is `[m, K]`."""
        totals = self.theta_means @ np.asarray(allocations, float).T  # [J, m]
        return float(self.prior @ totals.max(axis=1))
