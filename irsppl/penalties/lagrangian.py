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
        solution, *_ = _solve(bandit, first=bandit)
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


_Root = tuple[np.ndarray, np.ndarray, int]  # alpha, beta [K], and the periods left


def _root(bandit: Bandit) -> _Root:
    belief = check_plannable(bandit, "lagrangian")
    return host64(belief.alpha), host64(belief.beta), int(bandit.remaining)


def _solved_at(root: _Root) -> _Solution:
    alpha, beta, horizon = root
    for known in _solved:
        same = np.array_equal(known.alpha, alpha) and np.array_equal(known.beta, beta)
        if same and known.horizon == horizon:
            return known
    _solved.insert(0, _Solution(*root, minimize_lagrangian(*root)))
    del _solved[_KEEP:]
    return _solved[0]


def _since(root: _Root, now: _Root) -> tuple[np.ndarray, np.ndarray] | None:
    """Successes and failures [K] that lead from `root` to `now`; None where none do."""
    if root[0].shape != now[0].shape:
        return None
    wins, losses = (np.rint(ours - theirs) for ours, theirs in zip(now[:2], root[:2], strict=True))
    follows = (
        min(wins.min(), losses.min()) >= 0
        and wins.sum() + losses.sum() == root[2] - now[2]
        and np.allclose(root[0] + wins, now[0])
        and np.allclose(root[1] + losses, now[1])
    )
    return (wins.astype(np.int64), losses.astype(np.int64)) if follows else None


def _solve(bandit: Bandit, first: Bandit | None) -> tuple[_Solution, np.ndarray, np.ndarray]:
    """A solved relaxation that covers this state, and the successes and failures [K] since then.

    It starts with `first` or, if play does not lead from there to this state, with this state.
    None: any that was solved lately will do.
    """
    now = _root(bandit)
    lately: list[_Root] = [(each.alpha, each.beta, each.horizon) for each in _solved]
    for root in [*(lately if first is None else [_root(first)]), now]:
        since = _since(root, now)
        if since is not None:
            return _solved_at(root), *since
    raise AssertionError("every state leads to itself")


def solved_tables(
    bandit: Bandit, first: Bandit | None = None
) -> tuple[LagrangianTables, np.ndarray, np.ndarray]:
    """Index tables that cover this state, and the successes and failures [K] that lead to it."""
    solution, wins, losses = _solve(bandit, first)
    if solution.tables is None:
        solution.tables = lagrangian_tables(solution.bound)
    return solution.tables, wins, losses
