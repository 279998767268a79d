"""The ideal penalty: no future information is worth anything; W = V*, the Bayes-optimal value."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np

from irsppl._checks import is_concrete
from irsppl.bandit import Bandit
from irsppl.beliefs import Belief, Cloud, FiniteRewards
from irsppl.inner.bellman import solve, solve_joint, solve_points
from irsppl.outcomes import Outcome
from irsppl.penalties._payoffs import Inner
from irsppl.penalties.base import Penalty


class Ideal(Penalty):
    """Solved by the Bellman recursion over what has been seen (paper, eq. penalty-ideal)."""

    name: ClassVar[str] = "ideal"
    traceable: ClassVar[bool] = False
    reads_rewards: ClassVar[bool] = False
    bound_only: ClassVar[bool] = True  # its policy is called `opt`
    serves: ClassVar[frozenset[str]] = frozenset({"horizon law"})

    def check(self, bandit: Bandit) -> None:
        optimal_table(bandit)

    def exact(self, bandit: Bandit) -> float:
        return optimal_table(bandit)[0].value

    def inner(self, bandit: Bandit, outcome: Outcome) -> Inner:
        if not is_concrete(bandit, outcome):
            raise ValueError("ideal is solved on the host: it cannot be traced by JAX")
        table, counts = optimal_table(bandit)
        values = planning_root(bandit.belief).values
        categories = reward_categories(values, np.asarray(outcome.rewards)[None])[0]
        sequence = np.full(bandit.size, -1)
        pulls = np.zeros(bandit.num_arms, int)
        for t in range(int(bandit.remaining)):
            arm = table.action(counts)
            counts[arm, categories[arm, pulls[arm]]] += 1
            pulls[arm] += 1
            sequence[t] = arm
        # Along the optimal actions every payoff telescopes to V*, whatever the outcome.
        return Inner(np.float64(table.value), np.int32(sequence[0]), pulls, sequence)


class Root(NamedTuple):
    """A belief with finitely many rewards, as the recursion takes it (host, float64).

    prior: Dirichlet parameters [K, C] of a conjugate belief; otherwise weights of points, [K, N]
    each arm's own or [N] shared by the arms, with the chances of the rewards there, likelihood
    [K, N, C] or [N, K, C]. values [K, C]: the rewards.
    """

    prior: np.ndarray
    likelihood: np.ndarray | None
    values: np.ndarray

    def solve(self, remaining: int, weights: np.ndarray | None) -> Any:
        if self.likelihood is None:
            return solve(self.prior, self.values, remaining, weights)
        solver = solve_points if self.prior.ndim == 2 else solve_joint
        return solver(self.prior, self.likelihood, self.values, remaining, weights)

    def counts_to(self, later: Root) -> np.ndarray | None:
        """What must be seen to come from here to `later`, [K, C]; None if that is not to be told.

        Dirichlet parameters grow by what is seen. Weights of points are compared only for being
        the same: data could be read off them, but not reliably.
        """
        if self.prior.shape != later.prior.shape or not np.array_equal(self.values, later.values):
            return None
        if (self.likelihood is None) != (later.likelihood is None):
            return None
        if self.likelihood is None or later.likelihood is None:
            counts = np.rint(later.prior - self.prior).astype(np.int64)
            if not counts.any():  # priors that differ a little have optima that do, too
                return counts if np.array_equal(self.prior, later.prior) else None
            reached = counts.min() >= 0 and np.allclose(self.prior + counts, later.prior)
            return counts if reached else None
        same = np.array_equal(self.prior, later.prior)
        same = same and np.array_equal(self.likelihood, later.likelihood)
        return np.zeros(self.values.shape, np.int64) if same else None


def planning_root(belief: Belief) -> Root:
    """The belief for the recursion; `ValueError` where it has no finite form."""
    instead = "Use 'irs.v-zero' or 'irs.ff' for a bound, 'irs.index' for a policy"
    if isinstance(belief, Cloud):
        raise ValueError(
            "ideal / opt plans over the prior itself, of which particles are only a random sample: "
            "the result would be optimal for them, not for the model. Use "
            "representation='enumeration' or 'quadrature' where the model allows it. " + instead
        )
    tables = belief.reward_tables() if isinstance(belief, FiniteRewards) else None
    if tables is not None:
        return Root(*tables)
    raise ValueError(
        "ideal / opt needs rewards with finitely many values (Bernoulli, categorical), not "
        f"{type(belief).__name__}: the set of beliefs it would have to plan over is "
        "infinite. " + instead
    )


class Solved(NamedTuple):
    root: Root
    horizon: int
    weights: np.ndarray  # [horizon] what a reward of each period counts
    table: Any


# Tables solved lately; playing on from a root of conjugate arms needs no new one.
_solved: list[Solved] = []
_KEEP = 4


def optimal_table(bandit: Bandit, from_root: bool = True) -> tuple[Any, np.ndarray]:
    """A solved recursion that covers this state, and the counts [K, C] that lead to it.

    `from_root`: the table must start at this very state, so that its value is this state's V*.
    """
    root = planning_root(bandit.belief)
    if bandit.pending:
        raise ValueError("ideal / opt cannot plan while pulls are pending: let them arrive first")
    remaining = int(bandit.remaining)
    given = bandit.period_weights()  # None where the horizon is known
    weights = np.ones(remaining) if given is None else given
    for old in _solved:
        played = old.horizon - remaining
        counts = None if played < 0 else old.root.counts_to(root)
        if counts is None or counts.sum() != played or (played and from_root):
            continue
        before = old.weights[played:]
        # Values ask for the same weights; a factor in common orders all policies alike.
        alike = np.allclose(before * weights[0], weights * before[0])
        if np.array_equal(before, weights) if from_root else alike:
            return old.table, counts
    try:
        table = root.solve(remaining, given)
    except ValueError as error:
        raise ValueError(
            f"ideal / opt cannot solve this bandit: {error}. Use 'irs.v-zero' or 'irs.ff' for a "
            "bound, 'irs.index' for a policy"
        ) from error
    _solved.insert(0, Solved(root, remaining, weights, table))
    del _solved[_KEEP:]
    return table, np.zeros(root.values.shape, np.int64)


def reward_categories(values: np.ndarray, rewards: np.ndarray) -> np.ndarray:
    """The category of each reward, int `[S, K, T]` like the rewards; values [K, C]."""
    categories = np.empty(rewards.shape, np.int64)
    for arm, own in enumerate(values):
        order = np.argsort(own)
        edges = (own[order][1:] + own[order][:-1]) / 2
        categories[:, arm] = order[np.searchsorted(edges, rewards[:, arm])]
    return categories
