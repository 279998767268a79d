"""The ideal penalty: no future information is worth anything; W = V*, the Bayes-optimal value."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from irsppl._checks import is_concrete
from irsppl.bandit import Bandit
from irsppl.inner.bellman import solve
from irsppl.outcomes import Outcome
from irsppl.penalties._base import Inner, Penalty


class Ideal(Penalty):
    """Solved by the Bellman recursion over what has been seen (paper, eq. penalty-ideal)."""

    name: ClassVar[str] = "ideal"
    bound_only: ClassVar[bool] = True  # its policy is called `opt`

    def check(self, bandit: Bandit) -> None:
        optimal_table(bandit)

    def exact(self, bandit: Bandit) -> float:
        return optimal_table(bandit)[0].value

    def inner(self, bandit: Bandit, outcome: Outcome) -> Inner:
        if not is_concrete(bandit, outcome):
            raise ValueError("ideal is solved on the host: it cannot be traced by JAX")
        table, counts = optimal_table(bandit)
        categories = reward_categories(bandit, np.asarray(outcome.rewards)[None])[0]
        sequence = np.full(bandit.horizon, -1)
        pulls = np.zeros(bandit.num_arms, int)
        for t in range(int(bandit.remaining)):
            arm = int(table.actions(counts))
            counts[arm, categories[arm, pulls[arm]]] += 1
            pulls[arm] += 1
            sequence[t] = arm
        # Along the optimal actions every payoff telescopes to V*, whatever the outcome.
        return Inner(np.float64(table.value), np.int32(sequence[0]), pulls, sequence)


def require_finite_support(bandit: Bandit, name: str) -> tuple[np.ndarray, np.ndarray]:
    support = bandit.belief.finite_support()
    if support is None:
        raise ValueError(
            f"{name} needs rewards with finitely many values (Bernoulli, categorical), not "
            f"{type(bandit.belief).__name__}: the set of beliefs it would have to plan over is "
            "infinite. Use 'irs.v-zero' or 'irs.ff' for a bound, 'irs.index' for a policy"
        )
    return support


# Tables solved lately, with their roots; playing on from a root needs no new one.
_solved: list[tuple[np.ndarray, np.ndarray, int, Any]] = []
_KEEP = 4


def optimal_table(bandit: Bandit, from_root: bool = True) -> tuple[Any, np.ndarray]:
    """A solved recursion that covers this state, and the counts [K, C] that lead to it.

    `from_root`: the table must start at this very state, so that its value is this state's V*.
    """
    alpha, values = require_finite_support(bandit, "ideal / opt")
    if bandit.pending:
        raise ValueError("ideal / opt cannot plan while pulls are pending: let them arrive first")
    remaining = int(bandit.remaining)
    for root, root_values, horizon, table in _solved:
        if root.shape != alpha.shape or not np.array_equal(root_values, values):
            continue
        counts = np.rint(alpha - root).astype(np.int64)
        played = horizon - remaining
        follows = counts.min() >= 0 and counts.sum() == played and np.allclose(root + counts, alpha)
        if follows and (played == 0 or not from_root):
            return table, counts
    table = solve(alpha, values, remaining)
    _solved.insert(0, (alpha, values, remaining, table))
    del _solved[_KEEP:]
    return table, np.zeros(alpha.shape, np.int64)


def reward_categories(bandit: Bandit, rewards: np.ndarray) -> np.ndarray:
    """The category of each reward, same shape, int."""
    _, values = require_finite_support(bandit, "ideal / opt")
    order = np.argsort(values)
    edges = (values[order][1:] + values[order][:-1]) / 2
    return order[np.searchsorted(edges, rewards)]
