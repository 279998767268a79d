"""The Lagrangian bound: one arm per period on average only."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np

from irsppl._checks import host64
from irsppl.bandit import Bandit
from irsppl.beliefs import BetaBernoulli
from irsppl.inner.lagrangian import (
    LagrangianBound,
    LagrangianTables,
    lagrangian_tables,
    minimize_lagrangian,
)
from irsppl.penalties.base import Relaxation


class Lagrangian(Relaxation):
    """min over multipliers of sum_t lam_t + sum_a V_a(lam) (Brown and Smith, 2020).

    Not an information relaxation: the arms are decoupled, not the future revealed, so there is no
    inner problem of one future, only the bound. Bernoulli arms.
    """

    name: ClassVar[str] = "lagrangian"
    reads_rewards: ClassVar[bool] = False

    def check(self, bandit: Bandit) -> None:
        check_plannable(bandit, self.name)

    def exact(self, bandit: Bandit) -> float:
        solution, *_ = _solve(bandit, from_root=True)
        return solution.bound.value


def require_bernoulli(bandit: Bandit, name: str) -> BetaBernoulli:
    belief = bandit.belief
    if not isinstance(belief, BetaBernoulli):
        raise ValueError(
            f"{name} is solved by a recursion over counts of successes and failures, so it needs "
            f"BetaBernoulli arms, not {type(belief).__name__}. Use 'irs.index' or 'ogi' for a "
            "policy, 'irs.ff' or 'irs.v-zero' for a bound"
        )
    return belief


def check_plannable(bandit: Bandit, name: str) -> BetaBernoulli:
    """The Bernoulli belief; refuses what the recursion over counts cannot plan for."""
    belief = require_bernoulli(bandit, name)
    if bandit.pending:
        raise ValueError(f"{name} cannot plan while pulls are pending: let them arrive first")
    return belief


@dataclasses.dataclass(eq=False)
class _Solution:
    """The minimised relaxation of one bandit, and its index tables once they are asked for."""

    alpha: np.ndarray
    beta: np.ndarray
    horizon: int
    bound: LagrangianBound
    tables: LagrangianTables | None = None


# Relaxations solved lately; playing on from one of them needs no new one.
_solved: list[_Solution] = []
_KEEP = 2


def _solve(bandit: Bandit, from_root: bool) -> tuple[_Solution, np.ndarray, np.ndarray]:
    """A solved relaxation that covers this state, and the successes and failures [K] since then.

    from_root: it must start at this very state, so that its bound is this state's.
    """
    belief = check_plannable(bandit, "lagrangian")
    alpha, beta = host64(belief.alpha), host64(belief.beta)
    remaining = int(bandit.remaining)
    for solution in _solved:
        if solution.alpha.shape != alpha.shape:
            continue
        wins, losses = np.rint(alpha - solution.alpha), np.rint(beta - solution.beta)
        played = solution.horizon - remaining
        follows = (
            min(wins.min(), losses.min()) >= 0
            and wins.sum() + losses.sum() == played
            and np.allclose(solution.alpha + wins, alpha)
            and np.allclose(solution.beta + losses, beta)
        )
        if follows and (played == 0 or not from_root):
            return solution, wins.astype(np.int64), losses.astype(np.int64)
    bound = minimize_lagrangian(alpha, beta, remaining)
    solution = _Solution(alpha, beta, remaining, bound)
    _solved.insert(0, solution)
    del _solved[_KEEP:]
    zeros = np.zeros(len(alpha), np.int64)
    return solution, zeros, zeros


def solved_tables(bandit: Bandit) -> tuple[LagrangianTables, np.ndarray, np.ndarray]:
    """Index tables that cover this state, and the successes and failures [K] that lead to it."""
    solution, wins, losses = _solve(bandit, from_root=False)
    if solution.tables is None:
        solution.tables = lagrangian_tables(solution.bound)
    return solution.tables, wins, losses
