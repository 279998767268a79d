"""Information-directed sampling computed slowly and directly, in plain NumPy.

Everything follows from probabilities of being best, `P(A* = b)`, on a dense grid. The mutual
information is what its definition says, the entropy of A* now less its expectation after one more
reward, with the beliefs really updated; conditional means come from double sums over pairs of grid
points; the mixture from a fine grid of probabilities for every pair of arms.
"""

from __future__ import annotations

import itertools

import numpy as np
from scipy import special, stats


class Bernoulli:
    def __init__(self, alpha, beta):
        self.alpha, self.beta = np.array(alpha, float), np.array(beta, float)
        self.edges = np.sin(np.linspace(0, np.pi / 2, 4001)) ** 2  # dense at both ends

    def laws(self):
        return [stats.beta(a, b) for a, b in zip(self.alpha, self.beta, strict=True)]

    def rewards(self, arm):
        """(probability, belief after it) of each reward of an arm."""
        mean = self.alpha[arm] / (self.alpha[arm] + self.beta[arm])
        for win, p in ((1, mean), (0, 1 - mean)):
            alpha, beta = self.alpha.copy(), self.beta.copy()
            alpha[arm] += win
            beta[arm] += 1 - win
            yield p, Bernoulli(alpha, beta)


class Gaussian:
    def __init__(self, mean, sd, noise_sd, edges=None):
        self.mean, self.sd, self.noise_sd = (np.array(x, float) for x in (mean, sd, noise_sd))
        low, high = (self.mean - 9 * self.sd).min(), (self.mean + 9 * self.sd).max()
        self.edges = np.linspace(low, high, 6001) if edges is None else edges

    def laws(self):
        return [stats.norm(m, s) for m, s in zip(self.mean, self.sd, strict=True)]

    def rewards(self, arm, points=60):
        v, noise = self.sd[arm], self.noise_sd[arm]
        spread = np.hypot(v, noise)
        nodes, weights = np.polynomial.hermite_e.hermegauss(points)
        for z, weight in zip(nodes, weights / weights.sum(), strict=True):
            mean, sd = self.mean.copy(), self.sd.copy()
            mean[arm] += v * v / spread * z
            sd[arm] = v * noise / spread
            yield weight, Gaussian(mean, sd, self.noise_sd, self.edges)


def best_probabilities(belief):
    """P(A* = b): sum over grid cells of P(mu_b in the cell) P(all others below its middle)."""
    cdf = np.stack([law.cdf(belief.edges) for law in belief.laws()])
    mass = np.diff(cdf, axis=1)
    middle = (cdf[:, 1:] + cdf[:, :-1]) / 2
    prob = [np.sum(mass[b] * np.delete(middle, b, axis=0).prod(axis=0)) for b in range(len(cdf))]
    return np.array(prob) / np.sum(prob)


def entropy(p):
    p = p[p > 0]
    return -np.sum(p * np.log(p))


def mutual_information(belief, arm):
    """I(A*; Y_arm) by its definition."""
    later = sum(p * entropy(best_probabilities(after)) for p, after in belief.rewards(arm))
    return entropy(best_probabilities(belief)) - later


def conditional_means(belief):
    """(P(A* = b), E[mu_a | A* = b] as [b, a]) by sums over pairs of cells."""
    edges = belief.edges
    x = (edges[1:] + edges[:-1]) / 2
    cdf = np.stack([law.cdf(edges) for law in belief.laws()])
    mass = np.diff(cdf, axis=1)
    middle = (cdf[:, 1:] + cdf[:, :-1]) / 2
    count = len(mass)
    prob, cross = np.empty(count), np.empty((count, count))
    for b in range(count):
        others = np.delete(middle, b, axis=0).prod(axis=0)
        prob[b] = np.sum(mass[b] * others)
        cross[b, b] = np.sum(mass[b] * others * x)
        for a in set(range(count)) - {b}:
            rest = np.delete(middle, [a, b], axis=0).prod(axis=0)
            # sum of mu_a over the cells below (half of the cell itself)
            below = np.cumsum(mass[a] * x) - mass[a] * x / 2
            cross[b, a] = np.sum(mass[b] * rest * below)
    total = prob.sum()
    return prob / total, cross / prob[:, None]


def terms(belief, information):
    """(expected regret, information) of each arm."""
    prob, given = conditional_means(belief)
    mean = prob @ given
    regret = prob @ np.diagonal(given) - mean
    if information == "variance":
        return regret, prob @ (given - mean) ** 2
    return regret, np.array([mutual_information(belief, a) for a in range(len(prob))])


def least_ratio(regret, gain, points=20_001):
    """The least squared regret per information over mixtures of two arms, by trial."""
    q = np.linspace(0, 1, points)
    best = np.inf
    for i, j in itertools.combinations(range(len(regret)), 2):
        told = q * gain[i] + (1 - q) * gain[j]
        best = min(best, np.min((q * regret[i] + (1 - q) * regret[j]) ** 2 / told))
    return best


def ratio(regret, gain, mixture):
    """Squared regret per information of the mixture (i, j, probability of i)."""
    i, j, q = mixture
    return (q * regret[i] + (1 - q) * regret[j]) ** 2 / (q * gain[i] + (1 - q) * gain[j])


# ---- laws that a grid of means does not hold: U-shaped ones and those with heavy tails


class Line:
    """Independent arms on a fine grid of any variable t that the mean x(t) rises with.

    Sums over an even grid are as good as exact where everything is smooth in t and ends in zeros.
    """

    def __init__(self, t, x, density, below, partial):
        """density, below, partial [K, J]: of t; P(mu <= x); E[mu; mu <= x]."""
        self.x, self.below, self.partial = x, np.stack(below), np.stack(partial)
        self.mass = np.stack(density) * (t[1] - t[0])

    def moments(self):
        """(P(A* = b), E[mu_a; A* = b] as [b, a])."""
        count = len(self.mass)
        prob, cross = np.empty(count), np.empty((count, count))
        for b in range(count):
            others = np.delete(self.below, b, axis=0).prod(axis=0)
            prob[b], cross[b, b] = self.mass[b] @ others, self.mass[b] @ (others * self.x)
            for a in set(range(count)) - {b}:
                rest = np.delete(self.below, [a, b], axis=0).prod(axis=0)
                cross[b, a] = self.mass[b] @ (rest * self.partial[a])
        return prob, cross

    def terms(self, information):
        """(expected regret, information) of each arm."""
        prob, cross = self.moments()
        given, mean = cross / prob[:, None], cross.sum(axis=0)
        regret = np.diagonal(cross).sum() - mean
        if information == "variance":
            return regret, prob @ (given - mean) ** 2
        told = special.rel_entr(given, mean) + special.rel_entr(1 - given, 1 - mean)
        return regret, prob @ told


def beta_line(alpha, beta):
    """Beta laws in the logit, each tail from its own end."""
    t = np.arange(-690, 690, 0.02)
    x, y = special.expit(t), special.expit(-t)
    density, below, partial = [], [], []
    for a, b in zip(alpha, beta, strict=True):
        density.append(np.exp(a * special.log_expit(t) + b * special.log_expit(-t)))
        density[-1] /= special.beta(a, b)
        for law, first, scale in ((below, a, 1), (partial, a + 1, a / (a + b))):
            upper = 1 - special.betainc(b, first, y)
            law.append(scale * np.where(t < 0, special.betainc(first, b, x), upper))
    return Line(t, x, density, below, partial)


def inverse_gamma_line(shape, rate):
    """Means of exponential arms, in their logarithm."""
    t = np.arange(-20, 300, 0.01)
    x = np.exp(t)
    laws = [stats.invgamma(a, scale=b) for a, b in zip(shape, rate, strict=True)]
    partial = [
        b / (a - 1) * special.gammaincc(a - 1, b / x) for a, b in zip(shape, rate, strict=True)
    ]
    return Line(t, x, [law.pdf(x) * x for law in laws], [law.cdf(x) for law in laws], partial)


def student_line(mean, scale, freedom):
    t = np.arange(-90, 90, 0.01)
    x = np.sinh(t)
    density, below, partial = [], [], []
    for m, s, df in zip(mean, scale, freedom, strict=True):
        z = (x - m) / s
        density.append(stats.t.pdf(z, df) / s * np.cosh(t))
        below.append(stats.t.cdf(z, df))
        partial.append(m * below[-1] - s * (df + z * z) / (df - 1) * stats.t.pdf(z, df))
    return Line(t, x, density, below, partial)


def points_terms(points, weights):
    """Variance terms of arms with few points [K, N], by every combination; ties are shared."""
    arms = len(points)
    prob, cross = np.zeros(arms), np.zeros((arms, arms))
    for places in itertools.product(*(range(len(p)) for p in points)):
        means = np.array([points[a][i] for a, i in enumerate(places)])
        mass = np.prod([weights[a][i] for a, i in enumerate(places)])
        best = means == means.max()
        share = mass * best / best.sum()
        prob += share
        cross += share[:, None] * means
    mean = cross.sum(axis=0)
    given = cross / np.maximum(prob, 1e-300)[:, None]
    return np.diagonal(cross).sum() - mean, prob @ (given - mean) ** 2
