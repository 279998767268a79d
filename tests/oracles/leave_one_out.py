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


def best_plan(payoffs, periods, costs=None, budget=None):
    """The same with so many pulls in all; with costs: at most so many, and within the budget."""
    num_arms, horizon = payoffs.shape
    totals = np.concatenate([np.zeros((num_arms, 1)), np.cumsum(payoffs, axis=1)], axis=1)
    best = -np.inf
    for counts in itertools.product(range(min(periods, horizon) + 1), repeat=num_arms):
        fits = sum(counts) == periods
        if costs is not None:
            fits = sum(counts) <= periods and np.dot(counts, costs) <= budget + 1e-9
        if fits:
            best = max(best, sum(totals[a, n] for a, n in enumerate(counts)))
    return best


class Play:
    """The rules of play from some moment on: what is known when, and what may be pulled.

    periods: decisions to come; pending: (arm, decisions ago) of each pull whose reward is awaited,
    in the order of the pulls; delayed: rewards wait for their delays (else one decision, and
    pending ones are known at once); costs, budget: as usual, and one may stop.
    """

    def __init__(self, num_arms, periods, pending=(), delayed=False, costs=None, budget=None):
        self.num_arms, self.periods, self.pending = num_arms, periods, pending
        self.delayed, self.costs, self.budget = delayed, costs, budget

    def defect(self, rewards, delays, probabilities, pays, seed, chance_to_stop=0.2):
        """|E[what pulls pay - rewards]| of a policy that draws its move for each history, once.

        rewards, delays [S, K, N]: rows of each arm, pending pulls first; pays [S, K, T].
        """
        rng = np.random.default_rng(seed)
        moves = {}
        total = 0.0
        for i, p in enumerate(probabilities):
            late = None if delays is None else delays[i]
            total += p * self._run(rewards[i], late, pays[i], moves, rng, chance_to_stop)
        return abs(total)

    def _run(self, rewards, delays, pays, moves, rng, chance_to_stop):
        waiting, column = [], [0] * self.num_arms  # (decision from which it is known, arm, reward)
        for arm, ago in self.pending:
            n = column[arm]
            due = max(delays[arm][n] + 1 - ago, 1) if self.delayed else 0
            waiting.append((due, arm, rewards[arm][n]))
            column[arm] += 1
        counts, earned, left = [0] * self.num_arms, 0.0, self.budget
        for t in range(self.periods):
            history = tuple((arm, r if due <= t else None) for due, arm, r in waiting)
            arms = range(self.num_arms)
            if self.costs is not None:
                arms = [a for a in arms if self.costs[a] <= left + 1e-9]
            if not len(arms):
                break
            if (t, history) not in moves:
                stop = self.costs is not None and rng.uniform() < chance_to_stop
                moves[t, history] = -1 if stop else int(rng.choice(list(arms)))
            arm = moves[t, history]
            if arm < 0:
                break
            if self.costs is not None:
                left -= self.costs[arm]
            reward = rewards[arm][column[arm]]
            earned += pays[arm][counts[arm]] - reward
            late = delays[arm][column[arm]] if self.delayed else 0
            waiting.append((t + late + 1, arm, reward))
            column[arm] += 1
            counts[arm] += 1
        return earned
