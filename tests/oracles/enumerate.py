"""Exact values of small bandits, by enumerating everything.

Slow and obvious on purpose: nothing here shares code with the package, and every quantity is
computed from its definition.

Conventions
-----------
- Rewards take finitely many values. Inside these files a reward is its *category*, the index into
  `belief.values` (`[C]`); histories shown to a policy hold the value itself.
- `counts` is the data a posterior depends on: a tuple of K tuples of C integers, how often each
  arm has shown each category.
- Periods t and pulls n are numbered from 1 in formulas, arms from 0, as in the package.
- The reward of a pull made in period s whose delay is D is known before the decision of period t
  if and only if s + D <= t - 1.
- `gamma_t` is the weight of period t, P(T >= t) when the horizon is random and 1 otherwise.

Penalties
---------
A penalty is given through the payoff it leaves to the clairvoyant, r_t - z_t. Names: `zero`,
`ts`, `irs.fh`, `irs.ff`, `irs.ff-money`, `irs.v-zero`, `irs.v-zero-separable`, `irs.v-emax`,
`ideal`.

The parameters are not enumerated. `ts` needs them: its bound is an integral over them
(`bound`), and its penalty is averaged with E[mu_a | every reward of the outcome] in the place of
mu_a(theta) (`policy_mean_penalty`), which is exact because a policy's actions depend on rewards
only and mu_a(theta) enters the sum linearly.
"""

import functools
import math
from fractions import Fraction

import numpy as np

# Callers find all that a problem is made of here.
from .beliefs import BetaBernoulli as BetaBernoulli
from .beliefs import DirichletCategorical as DirichletCategorical
from .beliefs import JointDiscrete as JointDiscrete
from .bernoulli import bernoulli_bound as bernoulli_bound
from .bernoulli import two_bernoulli_optimal as two_bernoulli_optimal
from .problem import Outcome as Outcome
from .problem import (
    Problem,
    history,
    known_counts,
    outcome_from_rewards,
    outcomes,
    pulls_of,
    revealed_counts,
)

# --- payoffs r_t - z_t --------------------------------------------------------------------
# Each takes (problem, actions, outcome): actions is a_{1:t}, the payoff is that of period t.


def realised_reward(problem, actions, outcome):
    """gamma_t r_t."""
    arm, t = actions[-1], len(actions)
    category = outcome.rewards[arm][actions.count(arm) - 1]
    return problem.gamma[t - 1] * problem.belief.values[category]


def _ts(problem, actions, outcome):
    means = outcome.means
    if means is None:  # linear expectations only: see the head of the file
        means = problem.belief.means(revealed_counts(problem, outcome, lambda b, i, d: True))
    return problem.gamma[len(actions) - 1] * means[actions[-1]]


def _fh(problem, actions, outcome):
    arm, last = actions[-1], problem.periods

    def reveals(b, i, delay):
        if problem.costs is not None:
            most = math.floor((problem.budget - problem.costs[arm]) / problem.costs[b])
            if i > most:
                return False
        return i + delay <= last - 1

    means = problem.belief.means(revealed_counts(problem, outcome, reveals))
    return problem.gamma[len(actions) - 1] * means[arm]


def _ff(problem, actions, outcome, cap=None):
    """Full feedback. With a budget the clock is the money spent; with a horizon or a delay as
    well, also the period (`cap`); `irs.ff-money` never looks at the period."""
    t = len(actions)
    spent = problem.spent(actions[:-1])
    if cap is None:
        cap = problem.costs is None or problem.has_horizon or problem.delayed

    def reveals(b, i, delay):
        if problem.costs is not None and i > math.floor(spent / problem.costs[b]):
            return False
        return i + delay <= t - 1 if cap else True

    means = problem.belief.means(revealed_counts(problem, outcome, reveals))
    return problem.gamma[t - 1] * means[actions[-1]]


def _ff_money(problem, actions, outcome):
    if problem.costs is None or problem.delayed:
        raise NotImplementedError("irs.ff-money needs a budget and no delay")
    return _ff(problem, actions, outcome, cap=False)


def _v_zero(problem, actions, outcome):
    t = len(actions)
    means = problem.belief.means(known_counts(problem, actions[:-1], outcome, t))
    return problem.gamma[t - 1] * means[actions[-1]]


def _v_zero_separable(problem, actions, outcome):
    arm, n, last = actions[-1], actions.count(actions[-1]), problem.periods

    def reveals(b, i, delay):
        if b == arm:
            most = n - 1
        else:
            most = last - n
            if problem.costs is not None:
                left = problem.budget - n * problem.costs[arm]
                most = min(most, math.floor(left / problem.costs[b]))
        return i <= most and i + delay <= last - 1

    means = problem.belief.means(revealed_counts(problem, outcome, reveals))
    return problem.gamma[len(actions) - 1] * means[arm]


def _v_emax(problem, actions, outcome):
    if problem.costs is not None:
        raise NotImplementedError("irs.v-emax under a budget is not defined")
    t = len(actions)
    now = known_counts(problem, actions[:-1], outcome, t)
    after = known_counts(problem, actions, outcome, t + 1)
    expected_max = problem.belief.expected_max
    left = sum(problem.gamma[t:])
    payoff = problem.gamma[t - 1] * problem.belief.means(now)[actions[-1]]
    return payoff - left * (expected_max(after) - expected_max(now)) if left else payoff


def _ideal(problem, actions, outcome):
    solver = _optimal(problem)
    before = _state(problem, actions[:-1], outcome)
    after = _state(problem, actions, outcome)
    return solver.action_value(before, actions[-1]) - solver.value(after)


PAYOFFS = {
    "zero": realised_reward,
    "ts": _ts,
    "irs.fh": _fh,
    "irs.ff": _ff,
    "irs.ff-money": _ff_money,
    "irs.v-zero": _v_zero,
    "irs.v-zero-separable": _v_zero_separable,
    "irs.v-emax": _v_emax,
    "ideal": _ideal,
}


def payoff(problem, penalty, actions, outcome):
    """gamma_t r_t - z_t of the last period of `actions` = a_{1:t}.

    penalty : a name in `PAYOFFS`, or a function of the same arguments as those there.
    """
    return PAYOFFS.get(penalty, penalty)(problem, tuple(actions), outcome)


def penalty_value(problem, penalty, actions, outcome):
    """z_t(a_{1:t}, outcome)."""
    actions = tuple(actions)
    return realised_reward(problem, actions, outcome) - payoff(problem, penalty, actions, outcome)


# --- the optimal value --------------------------------------------------------------------


def _state(problem, actions, outcome):
    """State before the next decision: (period, known counts, pending (arm, period), spent)."""
    period = len(actions) + 1
    pending = tuple(
        sorted(
            (arm, s)
            for s, arm, n in pulls_of(actions)
            if s + outcome.delays[arm][n - 1] > period - 1
        )
    )
    known = known_counts(problem, actions, outcome, period)
    return period, known, pending, problem.spent(actions)


def _arrival_probability(law, waited):
    """P(D = waited | D >= waited)."""
    later = sum(p for d, p in law.items() if d >= waited)
    return law.get(waited, 0.0) / later if later > 0 else 0.0


class _Optimal:
    """V* by the Bellman recursion over states (period, known counts, pending pulls, spent)."""

    def __init__(self, problem):
        self.problem = problem
        self.value = functools.cache(self._value)
        self.action_value = functools.cache(self._action_value)

    def start(self):
        return 1, self.problem.belief.empty(), (), Fraction(0)

    def options(self, state):
        period, _, _, spent = state
        return self.problem.options_after(period - 1, spent)

    def _value(self, state):
        values = [self.action_value(state, arm) for arm in self.options(state)]
        if self.problem.may_stop or not values:
            values.append(0.0)
        return max(values)

    def _action_value(self, state, arm):
        problem, (period, known, pending, spent) = self.problem, state
        earned = problem.gamma[period - 1] * problem.belief.means(known)[arm]
        if problem.costs is not None:
            spent = spent + problem.costs[arm]
        waiting = sorted((*pending, (arm, period)))
        return earned + self._after(period, known, waiting, (), spent)

    def _after(self, period, known, waiting, kept, spent):
        """Mean of V at period + 1: go through the waiting pulls, each arrives or stays."""
        if not waiting:
            return self.value((period + 1, known, tuple(sorted(kept)), spent))
        (arm, made), rest = waiting[0], waiting[1:]
        chance = _arrival_probability(self.problem.delay_laws[arm], period - made)
        total = 0.0
        if chance < 1:
            stay = self._after(period, known, rest, (*kept, (arm, made)), spent)
            total += (1 - chance) * stay
        if chance > 0:
            for category, p in enumerate(self.problem.belief.predictive(known, arm)):
                if p > 0:
                    seen = _add(known, arm, category)
                    total += chance * p * self._after(period, seen, rest, kept, spent)
        return total


def _add(counts, arm, category):
    row = list(counts[arm])
    row[category] += 1
    return (*counts[:arm], tuple(row), *counts[arm + 1 :])


def _optimal(problem):
    if not hasattr(problem, "_solver"):
        problem._solver = _Optimal(problem)
    return problem._solver


def optimal_value(problem):
    """V*: the best expected total of rewards of a non-anticipating policy."""
    solver = _optimal(problem)
    return solver.value(solver.start())


def optimal_policy(problem):
    """A policy function history -> arm that attains V* (no random delays), -1 to stop."""
    solver = _optimal(problem)
    values = problem.belief.values

    def policy(past):
        rewards = [[] for _ in range(problem.belief.num_arms)]
        for arm, reward in past:
            # the reward of a pending pull is not used; any value keeps the pull's place
            rewards[arm].append(values[0] if reward is None else reward)
        outcome = outcome_from_rewards(problem, rewards)
        state = _state(problem, tuple(arm for arm, _ in past), outcome)
        options = list(solver.options(state))
        best = max(options, key=lambda a: solver.action_value(state, a), default=-1)
        stop = problem.may_stop and (best < 0 or solver.action_value(state, best) < 0)
        return -1 if stop else best

    return policy


# --- inner problems and bounds ------------------------------------------------------------


def inner_solutions(problem, penalty, outcome, tolerance=1e-10):
    """Value of the inner problem, and every action sequence that attains it.

    Goes through all feasible sequences (K^T without a budget). `ts` needs `outcome.means`.
    """
    _need_means(penalty, outcome)
    best, winners = -math.inf, []

    def visit(actions, total):
        nonlocal best, winners
        options = problem.options(actions)
        if problem.may_stop or not options:
            if total > best + tolerance:
                winners = [w for w in winners if w[1] >= total - tolerance]
            if total >= best - tolerance:
                winners.append((actions, total))
            best = max(best, total)
        for arm in options:
            longer = (*actions, arm)
            visit(longer, total + payoff(problem, penalty, longer, outcome))

    visit((), 0.0)
    return best, [actions for actions, total in winners if total >= best - tolerance]


def inner_value(problem, penalty, outcome):
    """max over action sequences of sum_t (r_t - z_t), by going through all of them."""
    _need_means(penalty, outcome)

    def best_from(actions):
        options = problem.options(actions)
        values = [
            payoff(problem, penalty, (*actions, arm), outcome) + best_from((*actions, arm))
            for arm in options
        ]
        if problem.may_stop or not options:
            values.append(0.0)
        return max(values)

    return best_from(())


def _need_means(penalty, outcome):
    if penalty == "ts" and outcome.means is None:
        raise ValueError("the inner problem of ts needs the means of the outcome")


def allocations(problem):
    """Every attainable vector of pull counts, `[m, K]`."""
    arms = range(problem.belief.num_arms)
    return np.array(sorted({tuple(s.count(a) for a in arms) for s in problem.sequences()}))


def bound(problem, penalty):
    """W^z = E[inner value], exactly: a sum over all outcomes; an integral over theta for `ts`."""
    if penalty == "ts":
        if problem.costs is None:
            return sum(problem.gamma) * problem.belief.expected_max(problem.belief.empty())
        if set(problem.gamma) != {1.0}:
            raise NotImplementedError("ts with a budget and survivor weights")
        return problem.belief.expected_allocation_max(allocations(problem))
    return sum(o.probability * inner_value(problem, penalty, o) for o in outcomes(problem))


def sampled_horizon_bound(belief, survival, penalty, **rules):
    """Sum over T of P(T) W^z(T): the horizon is revealed. `survival` is gamma_1, gamma_2, ..."""
    tail = [*survival, 0.0]
    total = 0.0
    for horizon in range(1, len(survival) + 1):
        p = tail[horizon - 1] - tail[horizon]
        if p > 0:
            total += p * bound(Problem(belief, horizon, **rules), penalty)
    return total


# --- non-anticipating policies ------------------------------------------------------------


def _mean_under_policy(problem, policy, per_period):
    """E[sum_t per_period(a_{1:t}, outcome)] under `policy`, by enumeration."""

    def run(actions, outcome):
        options = problem.options(actions)
        if not options:
            return 0.0
        choice = policy(history(problem, actions, outcome))
        choice = {int(choice): 1.0} if np.ndim(choice) == 0 else dict(enumerate(choice))
        total = 0.0
        for arm, p in choice.items():
            if p == 0 or (arm < 0 and problem.may_stop):
                continue
            if arm not in options:
                raise ValueError(f"policy: arm {arm} cannot be pulled after {actions}")
            longer = (*actions, arm)
            total += p * (per_period(longer, outcome) + run(longer, outcome))
        return total

    return sum(o.probability * run((), o) for o in outcomes(problem))


def policy_mean_penalty(problem, penalty, policy):
    """E[sum_t z_t] under a non-anticipating policy; 0 if the penalty is dual feasible.

    policy : function of the history ((arm, reward or None), ...) that returns an arm, -1 to stop
        (with a budget), or probabilities `[K]` over arms.
    """
    return _mean_under_policy(
        problem, policy, lambda actions, o: penalty_value(problem, penalty, actions, o)
    )


def policy_value(problem, policy):
    """E[sum_t gamma_t r_t] under a non-anticipating policy."""
    return _mean_under_policy(
        problem, policy, lambda actions, o: realised_reward(problem, actions, o)
    )
