"""The engine's rules from bare numbers: what tests of single kernels call.

A family is its code in `irsppl.inner.cpu.families`, with xi, nu and noise_sd of each arm.
"""

from statistics import NormalDist

import numpy as np

from irsppl.engine import budgets, ids, index, limits, tables, ucb, verbs
from irsppl.engine.dispatch import kernel_for
from irsppl.engine.families.counts import counts
from irsppl.engine.families.natural import natural
from irsppl.engine.ids import bernoulli, gaussian, mixture
from irsppl.engine.loops import play
from irsppl.engine.ogi import normal_index, ogi_index
from irsppl.engine.situation import NaturalState, Situation
from irsppl.inner import bellman
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.families import BETA_BERNOULLI, NORMAL_NORMAL
from irsppl.inner.lagrangian.relaxation import Relaxation
from irsppl.policies import find_policy

from .oracles.rows import as_rows


def solve_bernoulli(alpha, beta, horizon, weights=None):
    """Optimal value and policy of Beta-Bernoulli arms, alpha and beta [K]."""
    return bellman.solve(np.stack([beta, alpha], axis=1), [0.0, 1.0], horizon, weights)


def arms_in(solution, counts):
    """Arms [...] that a solved bandit pulls in states [..., K, C]."""
    counts = np.asarray(counts)
    states = counts.reshape(-1, *counts.shape[-2:])
    return np.array([solution.action(x) for x in states]).reshape(counts.shape[:-2])


def gittins_at(table, remaining, successes, failures):
    """Index in a Gittins table with so many pulls to go after given counts."""
    n = np.asarray(successes) + failures
    total = n + remaining
    place = (total - 1) * total * (total + 1) // 6 + n * (n + 1) // 2 + successes
    return table[place]


def lagrangian_value(alpha, beta, multipliers, tau=0.0):
    """L(lambda), an upper bound on V* for any multipliers [T], and a (sub)gradient [T]."""
    relaxation = Relaxation(alpha, beta, len(multipliers))
    relaxation.allocate()
    return relaxation.objective(np.asarray(multipliers, float), tau)


def kernel(rule, family, xi, nu, noise_sd, remaining, pulls=0, period=0):
    """The rule (a name or a policy) on arms [K] with so many periods left."""
    xi, nu, noise_sd = as_rows(xi, nu, noise_sd, np.shape(xi))
    arms = xi.size
    pulls = np.ascontiguousarray(np.broadcast_to(np.asarray(pulls, np.int64), (arms,)))
    belief = NaturalState(family, xi, nu, noise_sd)
    nothing = np.zeros(arms, np.int64)
    state = Situation(belief, period, remaining, remaining, pulls, nothing)
    return kernel_for(find_policy(rule), state)


def simulate_paths(rule, family, xi, nu, noise_sd, rewards, seeds, pulls=0, period=0):
    """Arms [S, T] along rewards [S, K, T]."""
    found = kernel(rule, family, xi, nu, noise_sd, rewards.shape[2], pulls, period)
    return found.paths(rewards, np.asarray(seeds, np.uint64))


def decide(rule, family, xi, nu, noise_sd, remaining, seeds):
    """Arms [S]; xi, nu and noise_sd [K], or [S, K] with a belief for each seed."""
    seeds = np.atleast_1d(np.asarray(seeds, np.uint64))
    if np.ndim(xi) == 1:
        return kernel(rule, family, xi, nu, noise_sd, remaining).decisions(seeds)
    rows = as_rows(xi, nu, noise_sd, np.shape(xi))
    each = [kernel(rule, family, *(x[s] for x in rows), remaining) for s in range(seeds.size)]
    return np.array([one.decisions(seeds[s : s + 1])[0] for s, one in enumerate(each)])


def free(num_arms):
    """No limits."""
    made = np.zeros(num_arms, np.int64)
    return limits.Limits(limits.Prompt(0), budgets.Free(0), limits.Sure(0), made)


def index_with_futures(policy, family, xi, nu, noise_sd, horizon, seed):
    """(arm, futures [K, M, T], how many rewards of each arm's were drawn [K]) of one decision."""
    arms = len(xi)
    part = natural(family, *as_rows(xi, nu, noise_sd, (arms,)), horizon, policy.num_futures)
    kind = index.Index if policy.num_futures == 1 else index.IndexMany
    rule = kind(np.empty(arms, np.int64), policy.lookahead or 0, policy.star)
    actions, none = np.full((1, 1), -1, np.int16), np.zeros(arms, np.int64)
    seeds, rng = np.array([seed], np.uint64), np.empty(4, np.uint64)
    unseen, one = np.zeros((1, 1, 1)), np.ones(1, np.int64)
    play(rule, part, free(arms), 0, horizon, none, none, unseen, one, seeds, rng, actions)
    return int(actions[0, 0]), np.moveaxis(part.futures, 2, 1), part.drawn


# ---- what rivals solve for, one arm at a time


@njit(cache=True)
def _quantile(part, level, z):
    verbs.reset(part)
    return verbs.quantile(part, 0, level, z, -np.inf, 0.0)


@njit(cache=True)
def _ogi(part, weight, offset):
    verbs.reset(part)
    return ogi_index(part, 0, weight, offset, -np.inf, 0.0)


def quantile(family, xi, nu, noise_sd, level):
    part = natural(family, [xi], [nu], [noise_sd], 0)
    return _quantile(part, level, NormalDist().inv_cdf(level))


def ogi(family, xi, nu, noise_sd, t):
    if t == 1:
        return xi / nu
    return _ogi(natural(family, [xi], [nu], [noise_sd], 0), t - 1.0, normal_index(t - 1.0))


def kl_ucb(family, mean, noise_sd, budget):
    if family == NORMAL_NORMAL:
        return mean + noise_sd * np.sqrt(2 * budget)
    return ucb.upper(family, mean, budget)


# ---- information-directed sampling


def ids_terms(family, xi, nu, noise_sd, form=ids.MUTUAL):
    """Regret [K], information [K], and the best mixture (i, j, probability of i).

    Arms that surely are not best have information 0.
    """
    arms = np.shape(xi)[-1]
    m, n, s = as_rows(xi, nu, noise_sd, (arms,))
    delta, gain = np.zeros(arms), np.zeros(arms)
    if family == BETA_BERNOULLI:
        rule = ids.bernoulli_rule(form, m, n, 1)
        found = bernoulli.beta_mixture(rule)
        mixture.score(form, arms, rule.small[0], rule.cross, delta, gain)
        return delta, gain, found
    rule = ids.gaussian_rule(form, n)
    found = gaussian.gaussian_mixture(rule, m, n, s)
    count, size, _ = gaussian.gaussian_moments(rule, m, n, s)
    small = rule.small
    delta[:] = small[1, 0] + small[3, 0] - m / n  # regrets differ as the means do
    for b in range(count):
        a = rule.arms[b]
        delta[a], gain[a] = small[1, b], small[2, b]
        if form == ids.MUTUAL:
            gain[a] = gaussian.gaussian_information(rule, count, size, b, s[a])
    return delta, gain, found


# ---- rules that look things up


def follow(rule, rewards, seeds=None, seen=None, values=(0.0, 1.0)):
    """Arms [S, T] of a table rule along rewards [S, K, T], after ``seen`` [K, C]."""
    runs, arms, horizon = np.shape(rewards)
    values = np.broadcast_to(np.asarray(values, float), (arms, np.shape(values)[-1]))
    seen = np.zeros(values.shape, int) if seen is None else np.asarray(seen)
    seeds = np.arange(runs) if seeds is None else seeds
    actions, none = np.full((runs, horizon), -1, np.int16), np.zeros(arms, np.int64)
    ends = np.full(runs, horizon)
    rng, seeds = np.empty(4, np.uint64), np.asarray(seeds, np.uint64)
    start = int(seen.sum())
    part = counts(seen, values)
    rewards = np.array(rewards, float)
    play(rule, part, free(arms), start, horizon, none, none, rewards, ends, seeds, rng, actions)
    return actions


def optimal(solution):
    return tables.Optimal(solution.kind, solution.table, solution.ranks)


def gittins(found, group):
    return tables.Gittins(np.stack(found), np.asarray(group, np.int64))


def lagrangian(found, tie="random"):
    fields = (found.index, found.pull, found.group, found.tie_tolerance)
    return tables.Lagrangian(*fields, tie == "optimal", np.empty(found.num_arms, np.int64))
