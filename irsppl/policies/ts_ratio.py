"""TS-ratio: Thompson sampling for budgets, by reward per cost."""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Array

from irsppl.bandit import Bandit
from irsppl.policies._base import Policy
from irsppl.policies.greedy import best_allowed


class TSRatio(Policy):
    """Sample the means, play the arm with the best mean per cost that can be paid.

    The budgeted Thompson sampling of Xia, Li, Qin, Yu and Liu (2015), with known costs. It looks
    neither at how much money is left nor at what the last of it can still buy.
    """

    name: ClassVar[str] = "ts-ratio"
    serves: ClassVar[frozenset[str]] = frozenset({"delay", "budget"})

    def check(self, bandit: Bandit) -> None:
        if "budget" not in bandit.constraints:
            raise ValueError(
                "ts-ratio is for bandits with costs and a budget, Bandit(belief, costs=..., "
                "budget=...); use 'ts' here"
            )

    def __call__(self, key: Array, bandit: Bandit) -> Array:
        means = bandit.belief.sample_means(key)
        return best_allowed(bandit, means / bandit.purse.costs)
