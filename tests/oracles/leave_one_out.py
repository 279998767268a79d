"""Leave-one-out penalties from their definition, by enumeration. Slow and obvious.

The (n+1)-th pull of arm a pays mu_hat_{a,n} - Z_a(n), with E[Z_a(n) | the first n rewards of a,
all rewards of the other arms] = 0. Arms and pulls are numbered from 0.
"""

import functools
import itertools

import numpy as np
from scipy import special


def one_armed_value(alpha, beta, horizon, lam):
    """v(n, s): what a Beta arm alone is worth against a known option lam."""

    @functools.cache
    def v(n, s):
        if n == horizon:
            return 0.0
        m = (alpha + s) / (alpha + beta + n)
        return max(0.0, m - lam + m * v(n + 1, s + 1) + (1 - m) * v(n + 1, s))

    return v


def bernoulli_penalties(alpha, beta, rewards, known, edges, lams, scale):
    """(means [K, T], Z [K, T]) of one outcome, rewards [K, T] of 0 and 1."""
    num_arms, horizon = rewards.shape
    means, z = np.zeros((num_arms, horizon)), np.zeros((num_arms, horizon))
    laws = []
    for b in range(num_arms):
        wins = rewards[b, :known].sum()
        laws.append(special.betainc(alpha[b] + wins, beta[b] + known - wins, edges))
    for a in range(num_arms):
        others = np.prod([laws[b] for b in range(num_arms) if b != a], axis=0)
        weights = np.diff(others)
        values = [one_armed_value(alpha[a], beta[a], horizon, lam) for lam in lams]
        for n in range(horizon):
            s = int(rewards[a, :n].sum())
            means[a, n] = (alpha[a] + s) / (alpha[a] + beta[a] + n)
            slope = sum(
                w * (v(n + 1, s + 1) - v(n + 1, s)) for w, v in zip(weights, values, strict=True)
            )
            z[a, n] = scale * (rewards[a, n] - means[a, n]) * slope
    return means, z


def best_value(payoffs):
    """max over all divisions of T pulls among the arms; payoffs [K, T] of single pulls."""
    num_arms, horizon = payoffs.shape
    totals = np.concatenate([np.zeros((num_arms, 1)), np.cumsum(payoffs, axis=1)], axis=1)
    return max(
        sum(totals[a, n] for a, n in enumerate(counts))
        for counts in itertools.product(range(horizon + 1), repeat=num_arms)
        if sum(counts) == horizon
    )


def conditional_defect(rewards, probabilities, z):
    """Largest |E[Z_a(n); the first n rewards of a, all rewards of the others]| over a, n, events.

    rewards [S, K, T] of all outcomes, their probabilities [S], z [S, K, T].
    """
    worst = 0.0
    for a, n in itertools.product(range(rewards.shape[1]), range(rewards.shape[2])):
        sums = {}
        for row, p, value in zip(rewards, probabilities, z[:, a, n], strict=True):
            others = np.delete(row, a, axis=0)
            event = (row[a, :n].tobytes(), others.tobytes())
            sums[event] = sums.get(event, 0.0) + p * value
        worst = max(worst, max(abs(total) for total in sums.values()))
    return worst


def policy_defect(rewards, probabilities, z, seed):
    """|E[Z collected]| of a policy that draws its next arm for each history, once and for all."""
    rng = np.random.default_rng(seed)
    num_arms, horizon = rewards.shape[1:]
    choices = {}
    total = 0.0
    for row, p, penalties in zip(rewards, probabilities, z, strict=True):
        history, counts = (), [0] * num_arms
        for _ in range(horizon):
            if history not in choices:
                choices[history] = int(rng.integers(num_arms))
            arm = choices[history]
            total += p * penalties[arm, counts[arm]]
            history = (*history, (arm, float(row[arm, counts[arm]])))
            counts[arm] += 1
    return abs(total)
