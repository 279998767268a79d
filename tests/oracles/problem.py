"""A small bandit with its rules, its outcomes, and what is known when (see `enumerate.py`)."""

import functools
import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np


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
        # Each outcome is gone through along the same sequences of arms.
        self.spent, self.options = functools.cache(self._spent), functools.cache(self._options)

    @property
    def may_stop(self):
        """Whether the decision maker may stop before the last period."""
        return self.costs is not None

    def _spent(self, actions):
        """Money spent by a sequence of arms, a tuple."""
        if self.costs is None:
            return Fraction(0)
        return sum((self.costs[a] for a in actions), Fraction(0))

    def _options(self, actions):
        """Arms that may be pulled after `actions`, a tuple, in increasing order."""
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


@functools.cache
def pulls_of(actions):
    """(period, arm, pull number) of every pull of a tuple of arms."""
    return [
        (period, arm, actions[:period].count(arm)) for period, arm in enumerate(actions, start=1)
    ]


def known_counts(problem, actions, outcome, period):
    """Counts of the rewards that the decision maker knows before the decision of `period`."""
    return problem.belief.count(
        (arm, outcome.rewards[arm][n - 1])
        for s, arm, n in pulls_of(actions)
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
        for s, arm, n in pulls_of(actions)
    )
