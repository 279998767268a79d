"""The FH / V-Zero mixture, slowly: all allocations, a plain table, decisions from whole futures.

Payoffs are lists of rows, one per arm: `rows[a][n]` is what pull number n (from 0) of arm a pays.
"""

import itertools

import numpy as np


def early(T0, num_arms):
    """n0: how many pulls of an arm pay as in V-Zero."""
    return max(1, T0 // num_arms)


def means_along(xi, nu, rewards):
    """Posterior means of one arm after its first 0, 1, ..., N rewards."""
    means = []
    for n in range(len(rewards) + 1):
        means.append((xi + sum(float(r) for r in rewards[:n])) / (nu + n))
    return means


def payoffs(means, n0, horizon):
    """Rows of payoffs of `horizon` pulls; `means[a]` are the posterior means of arm a."""
    rows = []
    for path in means:
        rows.append([path[n] if n < n0 else path[horizon - 1] for n in range(horizon)])
    return rows


def two_part(prefix, later, total):
    """Rows of payoffs from those of the first pulls and that of every later one."""
    return [
        [row[n] if n < len(row) else end for n in range(total)]
        for row, end in zip(prefix, later, strict=True)
    ]


def worth(rows, counts):
    return sum(sum(row[:n]) for row, n in zip(rows, counts, strict=True))


def by_enumeration(rows, total):
    """(best value, every allocation that attains it)."""
    found = []
    for counts in itertools.product(range(total + 1), repeat=len(rows)):
        if sum(counts) == total:
            found.append((worth(rows, counts), counts))
    best = max(value for value, _ in found)
    return best, [counts for value, counts in found if value >= best - 1e-12]


def by_table(rows, total):
    """Best value, by a table over arms and pulls: O(K total^2)."""
    best = np.full(total + 1, -np.inf)
    best[0] = 0.0
    for row in rows:
        sums = np.concatenate([[0.0], np.cumsum(row)])
        best = np.array(
            [max(best[n - m] + sums[m] for m in range(n + 1)) for n in range(total + 1)]
        )
    return best[total]


def counts_by_table(rows, total):
    """Counts of a best allocation (ties need care: use continuous payoffs)."""
    tables = [np.concatenate([[0.0], np.full(total, -np.inf)])]
    for row in rows:
        sums = np.concatenate([[0.0], np.cumsum(row)])
        last = tables[-1]
        tables.append(
            np.array([max(last[n - m] + sums[m] for m in range(n + 1)) for n in range(total + 1)])
        )
    counts = []
    left = total
    for row, last in zip(rows[::-1], tables[-2::-1], strict=True):
        sums = np.concatenate([[0.0], np.cumsum(row)])
        m = int(np.argmax([last[left - m] + sums[m] for m in range(left + 1)]))
        counts.append(m)
        left -= m
    return counts[::-1]


def most_pulled(rows, total):
    """The arm with the most pulls in a best allocation, the lowest index of several."""
    return int(np.argmax(counts_by_table(rows, total)))


def payoff(n0):
    """The mixture as a payoff for `tests/oracles/enumerate.py`."""

    def of_last_pull(problem, actions, outcome):
        arm = actions[-1]
        n = sum(a == arm for a in actions)
        known = n - 1 if n <= n0 else problem.periods - 1
        counts = problem.belief.count((arm, c) for c in outcome.rewards[arm][:known])
        return problem.belief.means(counts)[arm]

    return of_last_pull


# --- decisions, from whole futures drawn with NumPy's own samplers --------------------------------

DRAW = {
    "beta-bernoulli": lambda rng, xi, nu, sd, n: (rng.random(n) < rng.beta(xi, nu - xi)).astype(
        float
    ),
    "normal-normal": lambda rng, xi, nu, sd, n: rng.normal(
        rng.normal(xi / nu, sd / np.sqrt(nu)), sd, n
    ),
    "gamma-poisson": lambda rng, xi, nu, sd, n: rng.poisson(rng.gamma(xi, 1 / nu), n).astype(float),
    "gamma-exponential": lambda rng, xi, nu, sd, n: rng.exponential(
        1 / rng.gamma(nu + 1, 1 / xi), n
    ),
}


def shares(rng, family, xi, nu, sd, n0, remaining, count, pending=None):
    """How often each arm is played, in `count` decisions; `pending[a]` rewards are on their way."""
    num_arms = len(xi)
    pending = [0] * num_arms if pending is None else pending
    plays = np.zeros(num_arms)
    for _ in range(count):
        means = []
        for a in range(num_arms):
            rewards = DRAW[family](rng, xi[a], nu[a], sd[a], pending[a] + remaining)
            means.append(means_along(xi[a], nu[a], rewards)[pending[a] :])
        plays[most_pulled(payoffs(means, n0, remaining), remaining)] += 1
    return plays / count
