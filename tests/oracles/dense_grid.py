"""Bounds and optimal values by a dense grid over the parameters, in plain NumPy.

For models without conjugacy: one number theta per arm, on so fine a grid that its spacing does not
matter. Arms are independent. Slow and obvious on purpose: nothing here shares code with the
package, posteriors are products of densities, and recursions walk over dictionaries.
"""

import functools
import itertools
import math

import numpy as np
from scipy.special import ndtr


def normal_grid(mean, sd, reach=9.0, size=2001):
    """(theta [N], prior weights [N]) of a normal prior, evenly spaced."""
    z = np.linspace(-reach, reach, size)
    weights = np.exp(-0.5 * z**2)
    return mean + sd * z, weights / weights.sum()


def student_t_log_density(x, freedom, location, scale):
    """Log density of Student's t, by its formula."""
    z = (x - location) / scale
    head = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    head -= 0.5 * math.log(freedom * math.pi) + math.log(scale)
    return head - 0.5 * (freedom + 1) * np.log1p(z**2 / freedom)


# --- continuous rewards: along given futures ------------------------------------------------


class Arm:
    """One arm on its grid.

    theta, weights: `[N]`; log_density(reward, theta): log-likelihood; mean(theta): mean reward.
    """

    def __init__(self, theta, weights, log_density, mean):
        self.theta, self.weights, self.log_density = theta, weights, log_density
        self.mu = mean(theta)

    def path_means(self, rewards):
        """Posterior means after the first 0, 1, ..., T rewards: `[S, T]` to `[S, T + 1]`."""
        log_post = np.tile(np.log(self.weights), (len(rewards), 1))
        means = [np.full(len(rewards), self.weights @ self.mu)]
        for column in rewards.T:
            log_post = log_post + self.log_density(column[:, None], self.theta[None, :])
            post = np.exp(log_post - log_post.max(axis=1, keepdims=True))
            means.append(post @ self.mu / post.sum(axis=1))
        return np.stack(means, axis=1)


def inner_values(arms, means, rewards):
    """The clairvoyant's best total on each of S futures; means `[S, K]`, rewards `[S, K, T]`.

    {penalty: [S]} for ts, irs.fh, irs.ff and irs.v-zero.
    """
    _, num_arms, horizon = rewards.shape
    payoff = np.stack([arm.path_means(rewards[:, a]) for a, arm in enumerate(arms)], axis=1)
    # V-Zero: only how often each arm is pulled matters, and its n-th pull pays the mean after
    # n - 1 rewards; every split of the periods is tried.
    splits = [
        sum(payoff[:, a, :n].sum(axis=1) for a, n in enumerate(pulls))
        for pulls in itertools.product(range(horizon + 1), repeat=num_arms)
        if sum(pulls) == horizon
    ]
    return {
        "ts": horizon * means.max(axis=1),
        "irs.fh": horizon * payoff[:, :, horizon - 1].max(axis=1),
        "irs.ff": payoff[:, :, :horizon].max(axis=1).sum(axis=1),
        "irs.v-zero": np.max(splits, axis=0),
    }


# --- finitely many rewards: exact bounds and the optimal value ------------------------------


class CountArm:
    """One arm whose rewards are finitely many: weights `[N]`, chances `[N, C]`, values `[C]`."""

    def __init__(self, weights, chances, values):
        self.weights, self.chances, self.values = weights, chances, values
        self.predictive = functools.cache(self._predictive)

    def evidence(self, counts):
        """Probability, with each point, of one sequence that shows category c counts[c] times."""
        return self.weights * np.prod(self.chances ** np.array(counts), axis=1)

    def _predictive(self, counts):
        post = self.evidence(counts)
        return post @ self.chances / post.sum()

    def mean(self, counts):
        return float(self.predictive(counts) @ self.values)


def optimal_value(arms, horizon, gamma=None):
    """V*, with weight gamma[t] on the reward of period t; one dictionary of states."""
    gamma = [1.0] * horizon if gamma is None else gamma

    @functools.cache
    def value(state):
        t = sum(map(sum, state))
        if t == horizon:
            return 0.0
        return max(action_value(state, a) for a in range(len(arms)))

    def action_value(state, a):
        t = sum(map(sum, state))
        total = 0.0
        for c, p in enumerate(arms[a].predictive(state[a])):
            if p > 0:
                row = tuple(n + (i == c) for i, n in enumerate(state[a]))
                later = value((*state[:a], row, *state[a + 1 :]))
                total += p * (gamma[t] * arms[a].values[c] + later)
        return total

    return value(tuple((0,) * len(arm.values) for arm in arms))


def expected_max_after(arms, n):
    """E[max_a mu_hat_{a, n}], two-valued rewards: a sum over all pairs, triples, ... of counts."""
    laws = []
    for arm in arms:
        law = []
        for came in range(n + 1):
            counts = (n - came, came)
            chance = math.comb(n, came) * arm.evidence(counts).sum()
            if chance > 0:
                law.append((chance, arm.mean(counts)))
        laws.append(law)
    total = 0.0
    for picked in itertools.product(*laws):
        total += math.prod(chance for chance, _ in picked) * max(mean for _, mean in picked)
    return total


def expected_max_of_two(mu, reach=9.0, size=2001):
    """E[max(mu(Z), mu(Z'))] of two standard normals, mu rising: E[2 P(Z' < Z) mu(Z)]."""
    z, weights = normal_grid(0.0, 1.0, reach, size)
    return float(weights @ (2 * ndtr(z) * mu(z)))


def discounted_value(alpha, beta, discount, sweeps):
    """Value iteration for two Beta-Bernoulli arms with discounted rewards and no end.

    alpha, beta: `[2]`. One array over (successes and failures of both arms), `[M, M, M, M]`,
    started at zero and swept until `sweeps` are done: the root's error is then at most
    discount ** sweeps / (1 - discount). Counts beyond the array are worth nothing, and the root
    does not notice: it looks no further than one pull per sweep.
    """
    size = sweeps + 1
    n = np.arange(size)
    total = n[:, None] + n[None, :]
    first = ((alpha[0] + n)[:, None] / (alpha[0] + beta[0] + total))[:, :, None, None]
    second = ((alpha[1] + n)[:, None] / (alpha[1] + beta[1] + total))[None, None]
    value = np.zeros((size,) * 4)
    for _ in range(sweeps):
        padded = np.pad(value, (0, 1))
        after = [
            padded[1:, :-1, :-1, :-1],
            padded[:-1, 1:, :-1, :-1],
            padded[:-1, :-1, 1:, :-1],
            padded[:-1, :-1, :-1, 1:],
        ]
        one = first * (1 + discount * after[0]) + (1 - first) * discount * after[1]
        two = second * (1 + discount * after[2]) + (1 - second) * discount * after[3]
        value = np.maximum(one, two)
    return float(value[0, 0, 0, 0])
