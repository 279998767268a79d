"""Exact values of small bandits, by enumerating everything.

Slow and obvious on purpose: nothing here shares code with the package, and every quantity is
computed from its definition.

Conventions
-----------
- Rewards take finitely many values. Inside this file a reward is its *category*, the index into
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
import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy import integrate, special

from .laws import dirichlet_mean_cdf


def tanh_sinh(low, high, step=1 / 24, reach=3.3):
    """Fixed nodes and weights on [low, high], good with singular ends. Both are `[m]`."""
    grid = np.arange(-int(reach / step), int(reach / step) + 1) * step
    nodes = 0.5 * (1 + np.tanh(0.5 * np.pi * np.sinh(grid)))
    weights = step * 0.25 * np.pi * np.cosh(grid) / np.cosh(0.5 * np.pi * np.sinh(grid)) ** 2
    return low + (high - low) * nodes, (high - low) * weights


# --- beliefs ------------------------------------------------------------------------------


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
        return tuple(tuple(row) for row in table)


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


# --- the problem --------------------------------------------------------------------------


def _exact(x):
    """A float read as the decimal it prints as, so that floors of ratios are what they seem."""
    return Fraction(repr(float(x)))


class Problem:
    """A belief and the rules of play.

    belief : one of the beliefs above, K arms.
    horizon : number of periods T; may be None with a budget or with `survival`.
    delay : int, or K ints (`math.inf` for a reward that is never seen), or K dicts
        {delay: probability} for random delays, independent of everything else.
    costs, budget : cost of a pull of each arm `[K]` and the total; stopping early is then allowed.
    survival : gamma_t = P(T >= t) for t = 1, 2, ...; `[T]`.
    available : periods that pass before each arm can be pulled, `[K]`.
    """

    def __init__(
        self,
        belief,
        horizon=None,
        *,
        delay=0,
        costs=None,
        budget=None,
        survival=None,
        available=None,
    ):
        self.belief = belief
        arms = belief.num_arms
        self.available = (0,) * arms if available is None else tuple(available)
        if np.ndim(delay) == 0 and not isinstance(delay, dict):
            delay = [delay] * arms
        self.delay_laws = [d if isinstance(d, dict) else {d: 1.0} for d in delay]
        self.delayed = any(set(law) != {0} for law in self.delay_laws)
        self.costs = None if costs is None else tuple(_exact(c) for c in costs)
        self.budget = None if budget is None else _exact(budget)
        limits = [] if horizon is None else [int(horizon)]
        if survival is not None:
            limits.append(len(survival))
        self.has_horizon = bool(limits)
        if self.costs is not None:
            limits.append(math.floor(self.budget / min(self.costs)))
        self.periods = min(limits)  # no run is longer than this
        self.gamma = (1.0,) * self.periods
        if survival is not None:
            self.gamma = tuple(float(g) for g in survival)[: self.periods]

    @property
    def may_stop(self):
        """Whether the decision maker may stop before the last period."""
        return self.costs is not None

    def spent(self, actions):
        """Money spent by a sequence of arms."""
        if self.costs is None:
            return Fraction(0)
        return sum((self.costs[a] for a in actions), Fraction(0))

    def options(self, actions):
        """Arms that may be pulled after `actions`, in increasing order."""
        return self.options_after(len(actions), self.spent(actions))

    def options_after(self, played, spent):
        """The same after so many periods, with so much spent."""
        if played >= self.periods:
            return []
        arms = [a for a, first in enumerate(self.available) if first <= played]
        if self.costs is None:
            return arms
        return [a for a in arms if self.costs[a] <= self.budget - spent]

    def sequences(self):
        """Every complete run: all feasible action sequences, shorter ones too if one may stop."""
        stack = [()]
        while stack:
            actions = stack.pop()
            options = self.options(actions)
            if self.may_stop or not options:
                yield actions
            stack.extend((*actions, a) for a in reversed(options))


@dataclass(frozen=True)
class Outcome:
    """One future: rewards and delays of every pull, not only of those that will be made.

    rewards : K tuples of N categories; `rewards[a][n - 1]` belongs to the n-th pull of arm a.
    delays : K tuples of N delays.
    means : mu_a(theta), `[K]`, or None where the parameters are integrated out.
    probability : prior probability of rewards and delays.
    """

    rewards: tuple
    delays: tuple
    means: tuple | None = None
    probability: float = 1.0


def outcome_from_rewards(problem, rewards, means=None, delays=None):
    """An `Outcome` from reward values `[K, N]`, and optionally means `[K]` and delays `[K, N]`.

    Without `delays` each law of delay must have one atom.
    """
    values = problem.belief.values
    categories = tuple(
        tuple(int(np.argmin([abs(v - r) for v in values])) for r in row) for row in rewards
    )
    if delays is None:
        if any(len(law) > 1 for law in problem.delay_laws):
            raise ValueError("delays: random delays must be given with the outcome")
        delays = [
            [next(iter(law))] * len(row)
            for law, row in zip(problem.delay_laws, categories, strict=True)
        ]
    means = None if means is None else tuple(float(m) for m in means)
    return Outcome(categories, tuple(tuple(row) for row in delays), means)


def outcomes(problem):
    """Every outcome of positive probability, N = `problem.periods` pulls of every arm."""
    belief, n = problem.belief, problem.periods
    arms = belief.num_arms
    delay_rows = [list(itertools.product(law.items(), repeat=n)) for law in problem.delay_laws]
    rows = list(itertools.product(range(len(belief.values)), repeat=n))
    for rewards in itertools.product(rows, repeat=arms):
        data = [(a, c) for a in range(arms) for c in rewards[a]]
        p_rewards = belief.probability(belief.count(data))
        if p_rewards == 0.0:
            continue
        for choice in itertools.product(*delay_rows):
            delays = tuple(tuple(d for d, _ in row) for row in choice)
            p_delays = math.prod(p for row in choice for _, p in row)
            yield Outcome(rewards, delays, None, p_rewards * p_delays)


# --- what is known, and what a penalty reveals --------------------------------------------


def _pulls(actions):
    """(period, arm, pull number) of every pull."""
    seen = {}
    for period, arm in enumerate(actions, start=1):
        seen[arm] = seen.get(arm, 0) + 1
        yield period, arm, seen[arm]


def known_counts(problem, actions, outcome, period):
    """Counts of the rewards that the decision maker knows before the decision of `period`."""
    return problem.belief.count(
        (arm, outcome.rewards[arm][n - 1])
        for s, arm, n in _pulls(actions)
        if s + outcome.delays[arm][n - 1] <= period - 1
    )


def revealed_counts(problem, outcome, reveals):
    """Counts of the rewards R_{b,i} with `reveals(b, i, D_{b,i})` true."""
    return problem.belief.count(
        (b, outcome.rewards[b][i - 1])
        for b in range(problem.belief.num_arms)
        for i in range(1, len(outcome.rewards[b]) + 1)
        if reveals(b, i, outcome.delays[b][i - 1])
    )


def history(problem, actions, outcome):
    """What a policy sees: ((arm, reward value or None while pending), ...), one per past pull."""
    period = len(actions) + 1
    values = problem.belief.values
    return tuple(
        (
            arm,
            values[outcome.rewards[arm][n - 1]]
            if s + outcome.delays[arm][n - 1] <= period - 1
            else None,
        )
        for s, arm, n in _pulls(actions)
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
            (arm, s) for s, arm, n in _pulls(actions) if s + outcome.delays[arm][n - 1] > period - 1
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


# --- the same sums for a few more Bernoulli arms and periods, with arrays over outcomes ---


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
