"""Solved bandits: the table of a policy, how states are ranked in it, and checks of arguments."""

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from irsppl.inner.arrays import Floats, Ints
from irsppl.inner.cpu.compiling import njit

# Evaluations of states by the general solvers (seconds to a minute), and of two Bernoulli arms,
# whose inner loop is vectorised (about 3 ns a state); working memory and policy table together.
MAX_STATES: Final = 200_000_000
MAX_STATES_TWO_ARMED: Final = 4_000_000_000
MAX_BYTES: Final = 1_000_000_000
_TIE: Final = 1e-12


# Layouts of the policy table.
THRESHOLD: Final = 0
DENSE: Final = 1


@dataclass(frozen=True, eq=False)
class BellmanSolution:
    """Optimal value and policy of one bandit.

    ``table`` has one of two layouts, named by ``kind``: thresholds for two Bernoulli arms, one int8
    per state otherwise.  Treat both as private and use :meth:`action`.
    """

    value: float  # V*, the optimal expected (weighted) total reward
    q: Floats  # [K] value of pulling each arm first and going on optimally
    horizon: int
    kind: int = field(repr=False)
    table: NDArray = field(repr=False)
    ranks: Ints = field(repr=False)  # [K*C, T+2], see `rank_table`; empty for thresholds

    def action(self, counts: ArrayLike) -> int:
        """Optimal arm after integer counts ``[K, C]``, whose total is the period."""
        x = np.ravel(counts)
        if x.min() < 0 or x.sum() >= self.horizon:
            raise ValueError(f"counts must be >= 0 with a total below the horizon {self.horizon}")
        return lookup(self.kind, self.table, self.ranks, x)


def num_states(horizon: int, num_arms: int, num_categories: int = 2) -> int:
    """Number of states (count vectors with total below the horizon): C(T - 1 + KC, KC)."""
    cells = num_arms * num_categories
    return math.comb(horizon - 1 + cells, cells)


# ------------------------------------------------------------------------------- ranking and lookup


def rank_table(horizon: int, cells: int) -> Ints:
    """Rank contributions ``[M, T+2]`` with ``M`` cells.

    Let ``r_i = x_i + ... + x_{M-1}`` be the suffix sums of a count vector.  Within its layer the
    vector has rank ``sum_{i>=1} table[i, r_i]``, where ``table[i, r] = C(r + M-1-i, M-i)`` counts
    the vectors of a smaller suffix sum; ``table[0, t]`` is the number of states before layer
    ``t``.  The rank does not involve ``r_0 = t``: a vector and the vector with one more count in
    cell 0 share it, and a count in any other cell raises it.  That is what lets one array hold
    V_t and V_{t+1} at once when ranks are visited in ascending order.
    """
    rows = ((cells - 1 - i, cells - i) for i in range(cells))
    table = [[math.comb(r + more, of) for r in range(horizon + 2)] for more, of in rows]
    return np.array(table, dtype=np.int64)


@njit(cache=True, nogil=True)
def lookup(kind: int, table: NDArray, ranks: Ints, x: Ints) -> int:
    """Action in the state with counts ``x [K*C]``, flattened arm by arm."""
    if kind == DENSE:
        suffix = 0
        index = 0
        for i in range(x.size - 1, 0, -1):
            suffix += x[i]
            index += ranks[i, suffix]
        return int(table[index + ranks[0, suffix + x[0]]])
    n1 = x[0] + x[1]
    s1 = x[1]
    n2 = x[2] + x[3]
    s2 = x[3]
    t = n1 + n2
    index = t * (t + 1) * (t + 2) // 6 + n1 * (t + 1) - n1 * (n1 - 1) // 2 + s2
    return 0 if s1 >= table[index] else 1


# -------------------------------------------------------------------------------- argument checking


def check_horizon(horizon: int) -> int:
    if int(horizon) != horizon or horizon < 1:
        raise ValueError(f"horizon must be a positive integer, got {horizon}")
    return int(horizon)


def check_weights(weights: ArrayLike | None, horizon: int) -> Floats:
    if weights is None:
        return np.ones(horizon)
    w = np.ascontiguousarray(weights, dtype=np.float64)
    if w.shape != (horizon,) or not np.all(np.isfinite(w)) or np.any(w < 0.0):
        raise ValueError(f"weights must be {horizon} finite numbers >= 0, got {weights!r}")
    return w


def tie_band(weights: Floats, largest: float) -> Floats:
    """[T] differences that count as ties, see the module's docstring."""
    return _TIE * largest * np.cumsum(weights[::-1])[::-1]


def check_size(what: str, states: int, work: int, num_bytes: int, most: int = MAX_STATES) -> None:
    """Refuse what takes more than ``most`` evaluations of states, or than MAX_BYTES."""
    if work > most or num_bytes > MAX_BYTES:
        raise ValueError(
            f"{what}: {states:,} states, {work:,} state evaluations and {num_bytes / 1e6:,.0f} MB, "
            f"above the limit of {most:,} evaluations or {MAX_BYTES / 1e6:,.0f} MB; "
            "shorten the horizon"
        )
