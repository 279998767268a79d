"""The sums of `enumerate.py` for a few more Bernoulli arms and periods, by arrays of outcomes."""

import functools
import itertools
import math

import numpy as np
from scipy import special

from .beliefs import BetaBernoulli


def _reward_rows(alpha, beta, length):
    """All 0/1 rows of one arm: cumulated successes `[2^length, length + 1]`, probabilities."""
    rows = np.array(list(itertools.product((0, 1), repeat=length)), dtype=int)
    rows = rows.reshape(2**length, length)
    wins = np.concatenate([np.zeros((2**length, 1), int), np.cumsum(rows, axis=1)], axis=1)
    total = wins[:, -1]
    log_p = special.betaln(alpha + total, beta + length - total) - special.betaln(alpha, beta)
    return wins, np.exp(log_p)


def bernoulli_bound(alpha, beta, horizon, penalty):
    """W^z of independent Bernoulli arms, exact, all outcomes at once per arm.

    alpha, beta : `[K]`. penalty : `zero`, `irs.fh`, `irs.ff`, `irs.v-zero` or `irs.v-emax`. Good
    for K = 3, T = 8, where `bound` would need 2^24 outcomes of 3^8 sequences each.
    """
    if penalty == "irs.v-emax":
        return _bernoulli_v_emax(alpha, beta, horizon)
    # A payoff uses at most T - 1 rewards of an arm, except that `zero` pays the T-th as well.
    length = horizon if penalty == "zero" else horizon - 1
    arms = [_reward_rows(a, b, length) for a, b in zip(alpha, beta, strict=True)]
    if penalty in ("irs.fh", "irs.ff"):
        total = 0.0
        for t in range(1, horizon + 1):
            n = t - 1 if penalty == "irs.ff" else horizon - 1
            best, weight = np.array([-np.inf]), np.array([1.0])
            for (wins, p), a, b in zip(arms, alpha, beta, strict=True):
                mean = (a + wins[:, n]) / (a + b + n)
                best = np.maximum(best[:, None], mean[None, :]).ravel()
                weight = (weight[:, None] * p[None, :]).ravel()
            total += float(best @ weight)
        return total
    tables = []
    for (wins, p), a, b in zip(arms, alpha, beta, strict=True):
        if penalty == "zero":
            table = wins[:, : horizon + 1].astype(float)
        else:
            means = (a + wins) / (a + b + np.arange(horizon))
            table = np.concatenate([np.zeros((len(p), 1)), np.cumsum(means, axis=1)], axis=1)
        tables.append((table, p))
    value, weight = tables[0]
    for table, p in tables[1:-1]:
        rows = [_max_plus(value, row) for row in table]
        value = np.concatenate(rows)
        weight = np.concatenate([weight * q for q in p])
    table, p = tables[-1]
    total = 0.0
    for row, q in zip(table, p, strict=True):
        total += q * float(weight @ np.max(value + row[::-1], axis=1))
    return total


def _max_plus(rows, row):
    """out[r, n] = max over m of rows[r, n - m] + row[m]; rows `[R, T + 1]`, row `[T + 1]`."""
    out = np.full(rows.shape, -np.inf)
    for m in range(len(row)):
        out[:, m:] = np.maximum(out[:, m:], rows[:, : len(row) - m] + row[m])
    return out


def _bernoulli_v_emax(alpha, beta, horizon):
    belief = BetaBernoulli(alpha, beta)
    arms = [_reward_rows(a, b, horizon - 1) for a, b in zip(alpha, beta, strict=True)]
    num_arms = len(arms)
    points = [
        n for n in itertools.product(range(horizon + 1), repeat=num_arms) if sum(n) <= horizon
    ]
    points.sort(key=sum)
    # The last two arms are array axes; the earlier ones are looped over.
    (wins_y, p_y), (wins_z, p_z) = arms[-2:]

    @functools.cache
    def gamma_table(head, n_y, n_z):
        """E[max] for every number of successes of the last two arms, `[n_y + 1, n_z + 1]`."""
        return np.array(
            [
                [belief.expected_max((*head, (n_y - y, y), (n_z - z, z))) for z in range(n_z + 1)]
                for y in range(n_y + 1)
            ]
        )

    total = 0.0
    for heads in itertools.product(*(range(len(p)) for _, p in arms[:-2])):
        weight = math.prod(p[q] for q, (_, p) in zip(heads, arms[:-2], strict=True))

        def successes(arm, n, heads=heads):
            if arm == num_arms - 2:
                return wins_y[:, n][:, None]
            if arm == num_arms - 1:
                return wins_z[:, n][None, :]
            return arms[arm][0][heads[arm], n]

        value, gamma = {points[0]: np.zeros((len(p_y), len(p_z)))}, {}
        for n in points:
            if sum(n) >= horizon:
                continue
            head = tuple((n[a] - (w := int(successes(a, n[a]))), w) for a in range(num_arms - 2))
            table = gamma_table(head, n[-2], n[-1])
            gamma[n] = table[np.ix_(wins_y[:, n[-2]], wins_z[:, n[-1]])]
        for n in points[1:]:
            for arm in range(num_arms):
                if n[arm] == 0:
                    continue
                back = (*n[:arm], n[arm] - 1, *n[arm + 1 :])
                left = horizon - sum(back) - 1
                mean = (alpha[arm] + successes(arm, n[arm] - 1)) / (
                    alpha[arm] + beta[arm] + n[arm] - 1
                )
                candidate = value[back] + mean
                if left:
                    candidate = candidate + left * (gamma[back] - gamma[n])
                value[n] = np.maximum(value[n], candidate) if n in value else candidate
        best = functools.reduce(np.maximum, [value[n] for n in points if sum(n) == horizon])
        total += weight * float(p_y @ best @ p_z)
    return total


def two_bernoulli_optimal(alpha, beta, horizon):
    """V* of two independent Bernoulli arms by a backward recursion on arrays; alpha, beta `[2]`.

    The array of period t is indexed by (pulls of arm 0, its successes, successes of arm 1).
    """
    value = np.zeros((horizon + 1,) * 3)
    for t in range(horizon - 1, -1, -1):
        pulls = np.arange(t + 1)[:, None, None]
        wins_0 = np.arange(t + 1)[None, :, None]
        wins_1 = np.arange(t + 1)[None, None, :]
        # States with more successes than pulls cannot be visited; 1 keeps them finite.
        p_0 = np.minimum((alpha[0] + wins_0) / (alpha[0] + beta[0] + pulls), 1)
        p_1 = np.minimum((alpha[1] + wins_1) / (alpha[1] + beta[1] + t - pulls), 1)
        after = value[: t + 2, : t + 2, : t + 2]
        stay, up = after[1:, : t + 1, : t + 1], after[1:, 1:, : t + 1]
        q_0 = p_0 * (1 + up) + (1 - p_0) * stay
        other, other_up = after[: t + 1, : t + 1, : t + 1], after[: t + 1, : t + 1, 1:]
        q_1 = p_1 * (1 + other_up) + (1 - p_1) * other
        value = np.maximum(q_0, q_1)
    return float(value[0, 0, 0])
