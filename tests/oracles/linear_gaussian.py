"""Linear-Gaussian bandits by dense regression and enumeration, in float64.

Slow and obvious on purpose: one matrix inverse per question, written for the rewards themselves
(not for the weights), every order of pulls tried; no code shared with the package.
"""

import itertools

import numpy as np
from scipy import integrate, stats


class Regression:
    """features [K, d], mean [d], cov [d, d], noise_sd [K], offset [K]."""

    def __init__(self, features, mean, cov, noise_sd, offset=None):
        self.features, self.mean, self.cov = (np.asarray(x, float) for x in (features, mean, cov))
        self.num_arms = len(self.features)
        self.noise_sd = np.broadcast_to(np.asarray(noise_sd, float), (self.num_arms,))
        self.offset = np.zeros(self.num_arms) if offset is None else np.asarray(offset, float)

    def posterior(self, arms, rewards):
        """Mean [K] and covariance [K, K] of the arms' means after rewards [n] of arms [n]."""
        arms = np.asarray(arms, int)
        prior = self.features @ self.mean + self.offset
        joint = self.features @ self.cov @ self.features.T
        if len(arms) == 0:
            return prior, joint
        # Condition the Gaussian vector (means of the arms, rewards seen) on its second part.
        of_rewards = joint[np.ix_(arms, arms)] + np.diag(self.noise_sd[arms] ** 2)
        gain = np.linalg.solve(of_rewards, joint[arms]).T
        return prior + gain @ (np.asarray(rewards) - prior[arms]), joint - gain @ joint[arms]

    def after(self, rewards, counts):
        """`posterior` given the first counts[b] of rewards[b] of every arm b."""
        arms = np.repeat(np.arange(self.num_arms), counts)
        seen = [rewards[b][i] for b in range(self.num_arms) for i in range(counts[b])]
        return self.posterior(arms, seen)

    def v_zero(self, rewards, horizon):
        """The best total over every order of pulls when each pays its arm's mean at the counts."""
        best = -np.inf
        for order in itertools.product(range(self.num_arms), repeat=horizon):
            counts, total = [0] * self.num_arms, 0.0
            for arm in order:
                total += self.after(rewards, counts)[0][arm]
                counts[arm] += 1
            best = max(best, total)
        return best

    def v_zero_separable(self, rewards, horizon):
        """The same, but the n-th pull of an arm pays its mean given horizon - n of every other."""
        best = -np.inf
        for pulls in itertools.product(range(horizon + 1), repeat=self.num_arms):
            if sum(pulls) != horizon:
                continue
            total = 0.0
            for arm, many in enumerate(pulls):
                for n in range(1, many + 1):
                    counts = [horizon - n] * self.num_arms
                    counts[arm] = n - 1
                    total += self.after(rewards, counts)[0][arm]
            best = max(best, total)
        return best


def expected_max(mean, cov):
    """E[max] of jointly normal numbers: the integral of the survival function of the maximum.

    Each conditional probability is taken from the joint law in turn: P(max > x) is the sum over a
    of P(X_a in dx and all others lower), and the others given X_a are normal; two or three numbers.
    """
    mean, cov = np.asarray(mean, float), np.asarray(cov, float)
    total = 0.0
    for a in range(len(mean)):
        rest = [b for b in range(len(mean)) if b != a]
        sd = np.sqrt(cov[a, a])
        slope = cov[rest, a] / cov[a, a]
        left = cov[np.ix_(rest, rest)] - np.outer(slope, cov[a, rest])
        law = stats.multivariate_normal(np.zeros(len(rest)), left, allow_singular=True)

        def density(x, a=a, rest=rest, sd=sd, slope=slope, law=law):
            lower = x - (mean[rest] + slope * (x - mean[a]))
            return x * law.cdf(lower) * stats.norm.pdf(x, mean[a], sd)

        low, high = mean[a] - 9 * sd, mean[a] + 9 * sd
        total += integrate.quad(density, low, high, epsabs=1e-11, epsrel=1e-11, limit=400)[0]
    return total
