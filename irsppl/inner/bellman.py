"""Bayes-optimal values and policies by backward recursion over pull counts (OPT).

Every solver here works on bandits whose rewards take finitely many values, so that what has been
seen is summarised by a count vector ``x [K, C]``: how often arm ``a`` has shown category ``c``.
The Bellman equation (paper, section "Bayesian Optimal Policy"), with survivor weights,

    V_t(x) = max_a  w_t * mean_a(x) + sum_c p_{a,c}(x) V_{t+1}(x + e_{a,c}),     V_T = 0,

is solved layer by layer, ``t`` being the total count.  ``w_t = P(T >= t)`` handles an unknown
horizon; it is one throughout when the horizon is known.

Four solvers share one result type:

- :func:`solve_two_bernoulli` for two Beta-Bernoulli arms, whose policy is a table of thresholds
  (0.2 s and 1.35 MB at T = 200);
- :func:`solve_independent` for independent Dirichlet-categorical arms, any K and C;
- :func:`solve_points` for independent arms whose parameters take finitely many values each;
- :func:`solve_joint` for correlated arms whose parameter takes finitely many values.

:func:`solve` and :func:`solve_bernoulli` pick the faster of the first two.  The second and third
share one recursion: all it asks of an arm is a predictive table, the chances of its next reward by
its own counts.

**Categories of a Bernoulli arm.**  Category 0 is failure and category 1 success, so a reward is its
own category, and the Dirichlet parameters of Beta(alpha, beta) are ``[beta, alpha]``.

**Ties** go to the arm with the lowest index.  Two actions count as tied when their values differ by
less than ``1e-12 * max|reward| * (sum of the weights still to come)``: rounding leaves differences
of about 1e-14 on that scale between actions that are equal by symmetry, and a decision taken inside
the band costs no more than the band.  Values are not affected, they use the plain maximum.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "BellmanSolution",
    "num_states",
    "paths",
    "solve",
    "solve_bernoulli",
    "solve_independent",
    "solve_joint",
    "solve_points",
    "solve_two_bernoulli",
]

MAX_STATES: Final = 200_000_000
"""Default limit on state evaluations of the general solvers (seconds to a minute)."""

MAX_STATES_TWO_ARMED: Final = 4_000_000_000
"""Default limit for two Bernoulli arms, whose inner loop is vectorised (about 3 ns a state)."""

MAX_BYTES: Final = 1_000_000_000
"""Default limit on working memory and policy table together."""

_TIE: Final = 1e-12
# Numbers that a block of predictive rows takes while it is worked on.
_BLOCK: Final = 4_000_000

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]

# Layouts of the policy table.
_THRESHOLD: Final = 0
_BITS: Final = 1
_DENSE: Final = 2


@dataclass(frozen=True, eq=False)
class BellmanSolution:
    """Optimal value and policy of one bandit.

    ``table`` has one of three layouts, named by ``kind``: thresholds or bits for two Bernoulli
    arms, one int8 per state otherwise.  Treat both as private and use :meth:`actions`.
    """

    value: float
    """V*, the optimal expected (weighted) total reward."""
    q: NDArray[np.float64]
    """[K] value of pulling each arm first and going on optimally."""
    horizon: int
    num_arms: int
    num_categories: int
    kind: int = field(repr=False)
    table: NDArray = field(repr=False)
    ranks: NDArray[np.int64] = field(repr=False)
    """[K*C, T+2] rank contributions, see :func:`_rank_table`; empty for two-armed layouts."""

    @property
    def nbytes(self) -> int:
        """Memory held by the policy."""
        return self.table.nbytes + self.ranks.nbytes

    def actions(self, counts: ArrayLike) -> NDArray[np.int64]:
        """Optimal arm in each of many states.

        Parameters
        ----------
        counts
            int ``[..., K, C]``; the period is the total count, which must be below the horizon.

        Returns
        -------
        int64 ``[...]``
        """
        x = np.asarray(counts)
        shape = (self.num_arms, self.num_categories)
        if x.shape[-2:] != shape:
            raise ValueError(f"counts must have shape [..., {shape[0]}, {shape[1]}], got {x.shape}")
        if x.dtype.kind not in "iub":
            raise ValueError(f"counts must be integers, got dtype {x.dtype}")
        flat = np.ascontiguousarray(x.reshape(-1, shape[0] * shape[1]), dtype=np.int64)
        if flat.size and (flat.min() < 0 or flat.sum(axis=1).max() >= self.horizon):
            raise ValueError(f"counts must be >= 0 with a total below the horizon {self.horizon}")
        out = np.empty(flat.shape[0], np.int64)
        _lookup_many(self.kind, self.table, self.ranks, flat, out)
        return out.reshape(x.shape[:-2])


def num_states(horizon: int, num_arms: int, num_categories: int = 2) -> int:
    """Number of states (count vectors with total below the horizon): C(T - 1 + KC, KC)."""
    cells = num_arms * num_categories
    return math.comb(horizon - 1 + cells, cells)


# ------------------------------------------------------------------------------- ranking and lookup


def _rank_table(horizon: int, cells: int) -> NDArray[np.int64]:
    """Rank contributions ``[M, T+2]`` with ``M`` cells.

    Let ``r_i = x_i + ... + x_{M-1}`` be the suffix sums of a count vector.  Within its layer the
    vector has rank ``sum_{i>=1} table[i, r_i]``, where ``table[i, r] = C(r + M-1-i, M-i)`` counts
    the vectors of a smaller suffix sum; ``table[0, t]`` is the number of states before layer
    ``t``.  The rank does not involve ``r_0 = t``: a vector and the vector with one more count in
    cell 0 share it, and a count in any other cell raises it.  That is what lets one array hold
    V_t and V_{t+1} at once when ranks are visited in ascending order.
    """
    return np.array(
        [
            [math.comb(r + cells - 1 - i, cells - i) for r in range(horizon + 2)]
            for i in range(cells)
        ],
        dtype=np.int64,
    )


@njit(cache=True, nogil=True)
def _lookup(kind: int, table: NDArray, ranks: _Ints, x: _Ints) -> int:
    """Action in the state with counts ``x [K*C]``, flattened arm by arm."""
    if kind == _DENSE:
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
    if kind == _THRESHOLD:
        index = t * (t + 1) * (t + 2) // 6 + n1 * (t + 1) - n1 * (n1 - 1) // 2 + s2
        return 0 if s1 >= table[index] else 1
    index = _bit_row(t, n1) + s1 * (n2 + 1) + s2
    return int((table[index >> 3] >> (index & 7)) & 1)


@njit(cache=True, nogil=True)
def _bit_row(t: int, n1: int) -> int:
    """Number of two-armed states before those of period ``t`` with ``n1`` pulls of arm 0."""
    before = t * (t + 1) * (t + 2) * (t + 3) // 24
    squares = (n1 - 1) * n1 * (2 * n1 - 1) // 6
    return before + n1 * (t + 1) + t * (n1 * (n1 - 1) // 2) - squares


@njit(cache=True, nogil=True)
def _lookup_many(kind: int, table: NDArray, ranks: _Ints, counts: _Ints, out: _Ints) -> None:
    for i in range(counts.shape[0]):
        out[i] = _lookup(kind, table, ranks, counts[i])


@njit(cache=True, nogil=True)
def _paths(
    kind: int,
    table: NDArray,
    ranks: _Ints,
    categories: NDArray,
    num_categories: int,
    out: NDArray[np.int16],
) -> bool:
    """Fill ``out [S, T]``; returns False if some category that was met is out of range."""
    num_paths, num_arms, _ = categories.shape
    x = np.empty(num_arms * num_categories, np.int64)
    pulls = np.empty(num_arms, np.int64)
    for i in range(num_paths):
        x[:] = 0
        pulls[:] = 0
        for t in range(out.shape[1]):
            a = _lookup(kind, table, ranks, x)
            out[i, t] = a
            c = np.int64(categories[i, a, pulls[a]])
            if c < 0 or c >= num_categories:
                return False
            pulls[a] += 1
            x[a * num_categories + c] += 1
    return True


def paths(solution: BellmanSolution, rewards_category: ArrayLike) -> NDArray[np.int16]:
    """Play the optimal policy on given outcomes.

    Parameters
    ----------
    solution
        From any solver of this module.
    rewards_category
        int ``[S, K, T]``: the ``n``-th pull of arm ``a`` on path ``s`` shows category
        ``rewards_category[s, a, n]``.  For Bernoulli arms that is the reward itself.

    Returns
    -------
    int16 ``[S, T]``, the arm pulled in each period.
    """
    outcome = np.asarray(rewards_category)
    if outcome.ndim != 3 or outcome.shape[1:] != (solution.num_arms, solution.horizon):
        raise ValueError(
            f"rewards_category must have shape [S, {solution.num_arms}, {solution.horizon}], "
            f"got {outcome.shape}"
        )
    # One integer type keeps one compiled kernel, and int8 keeps the outcomes in cache.
    small = np.int8 if solution.num_categories <= 127 else np.int64
    out = np.empty((outcome.shape[0], solution.horizon), np.int16)
    outcome = np.ascontiguousarray(outcome, dtype=small)
    if not _paths(
        solution.kind, solution.table, solution.ranks, outcome, solution.num_categories, out
    ):
        raise ValueError(f"categories must lie in 0 .. {solution.num_categories - 1}")
    return out


# -------------------------------------------------------------------------------- argument checking


def _check_horizon(horizon: int) -> int:
    if int(horizon) != horizon or horizon < 1:
        raise ValueError(f"horizon must be a positive integer, got {horizon}")
    return int(horizon)


def _check_weights(weights: ArrayLike | None, horizon: int) -> NDArray[np.float64]:
    if weights is None:
        return np.ones(horizon)
    w = np.ascontiguousarray(weights, dtype=np.float64)
    if w.shape != (horizon,) or not np.all(np.isfinite(w)) or np.any(w < 0.0):
        raise ValueError(f"weights must be {horizon} finite numbers >= 0, got {weights!r}")
    return w


def _tie_band(weights: NDArray[np.float64], largest: float) -> NDArray[np.float64]:
    """[T] differences that count as ties, see the module's docstring."""
    return _TIE * largest * np.cumsum(weights[::-1])[::-1]


def _check_size(
    what: str, states: int, work: int, num_bytes: int, max_states: float, max_bytes: float
) -> None:
    if work > max_states or num_bytes > max_bytes:
        raise ValueError(
            f"{what}: {states:,} states, {work:,} state evaluations and {num_bytes / 1e6:,.0f} MB, "
            f"above the limit of {max_states:,.0f} evaluations or {max_bytes / 1e6:,.0f} MB; "
            "shorten the horizon or raise max_states / max_bytes"
        )


# ------------------------------------------------------------------------------- two Bernoulli arms


@njit(cache=True, nogil=True)
def _two_armed_row(
    w: float,
    m1: float,
    m2: _Floats,
    up: _Floats,
    down: _Floats,
    own: _Floats,
    band: float,
    play: _Floats,
) -> None:
    """One row ``s2 = 0 .. n2`` of the recursion; a function of its own so that it vectorises.

    ``own`` is overwritten from left to right and read one place ahead, never behind.
    """
    k1 = 1.0 - m1
    for s2 in range(play.size):
        q1 = m1 * (w + up[s2]) + k1 * down[s2]
        q2 = m2[s2] * (w + own[s2 + 1]) + (1.0 - m2[s2]) * own[s2]
        d = q1 - q2
        own[s2] = q1 if d > 0.0 else q2
        play[s2] = 1.0 if d >= -band else 0.0


@njit(cache=True, nogil=True)
def _two_armed(
    a1: float,
    b1: float,
    a2: float,
    b2: float,
    weights: _Floats,
    bands: _Floats,
    kind: int,
    table: NDArray,
    q: _Floats,
) -> tuple[float, bool]:
    """Backward recursion for two Beta-Bernoulli arms.

    One flat array holds V for all (n1, s1, s2) with n1 + s2 <= T, whatever the layer: row
    (n1, s1) has T + 1 - n1 places.  A state of layer t needs, in layer t+1, its own place, the
    next one in its row, and two rows of n1 + 1; ascending order therefore reads each before it is
    overwritten.

    Fills ``table`` and ``q [2]``; returns V* and whether the rule was monotone (always True when
    bits are stored).
    """
    horizon = weights.size
    start = np.empty(horizon + 2, np.int64)
    size = 0
    for n1 in range(horizon + 1):
        start[n1] = size
        size += (n1 + 1) * (horizon + 1 - n1)
    value = np.zeros(size)
    m2 = np.empty(horizon)
    play = np.empty(horizon)
    wins = np.empty(horizon)
    places = np.empty(horizon)
    monotone = True
    for t in range(horizon - 1, -1, -1):
        w = weights[t]
        for n1 in range(t + 1):
            n2 = t - n1
            scale1 = 1.0 / (a1 + b1 + n1)
            scale2 = 1.0 / (a2 + b2 + n2)
            for s2 in range(n2 + 1):
                m2[s2] = (a2 + s2) * scale2
                wins[s2] = 0.0
                places[s2] = 0.0
            bit = _bit_row(t, n1)
            for s1 in range(n1 + 1):
                row = start[n1] + s1 * (horizon + 1 - n1)
                below = start[n1 + 1] + s1 * (horizon - n1)
                above = below + horizon - n1
                m1 = (a1 + s1) * scale1
                if t == 0:
                    q[0] = m1 * (w + value[above]) + (1.0 - m1) * value[below]
                    q[1] = m2[0] * (w + value[row + 1]) + (1.0 - m2[0]) * value[row]
                _two_armed_row(
                    w,
                    m1,
                    m2[: n2 + 1],
                    value[above : above + n2 + 1],
                    value[below : below + n2 + 1],
                    value[row : row + n2 + 2],
                    bands[t],
                    play[: n2 + 1],
                )
                if kind == _THRESHOLD:
                    place = np.float64(s1)
                    for s2 in range(n2 + 1):
                        wins[s2] += play[s2]
                        places[s2] += play[s2] * place
                else:
                    for s2 in range(n2 + 1):
                        if play[s2] == 0.0:
                            table[bit >> 3] |= np.uint8(1 << (bit & 7))
                        bit += 1
            if kind == _THRESHOLD:
                row = t * (t + 1) * (t + 2) // 6 + n1 * (t + 1) - n1 * (n1 - 1) // 2
                for s2 in range(n2 + 1):
                    c = wins[s2]
                    # c different numbers in 0..n1 add up to this much only if they are the top c.
                    if 2.0 * places[s2] != c * (2.0 * n1 + 1.0 - c):
                        monotone = False
                    table[row + s2] = n1 + 1 - np.int64(c)
    return value[0], monotone


def solve_two_bernoulli(
    alpha: ArrayLike,
    beta: ArrayLike,
    horizon: int,
    weights: ArrayLike | None = None,
    *,
    max_states: float | None = None,
    max_bytes: float = MAX_BYTES,
    force_bits: bool = False,
) -> BellmanSolution:
    """Optimal value and policy of two independent Beta-Bernoulli arms.

    O(T^4 / 24) time and O(T^3 / 6) memory.  With the pulls of both arms and the successes of the
    other held fixed, the optimal rule plays arm 0 from some number of its own successes on, so per
    (t, n1, s2) that one number is stored.  The solver checks this at every state and, should it
    ever fail, solves again with one bit per state.

    Parameters
    ----------
    alpha, beta
        ``[2]`` Beta parameters, positive.
    horizon
        Number of periods T.
    weights
        ``[T]`` survivor weights, ones if omitted.
    max_states, max_bytes
        Refuse larger problems with a ``ValueError``.
    force_bits
        Store one bit per state in any case (for tests).
    """
    horizon = _check_horizon(horizon)
    w = _check_weights(weights, horizon)
    a = np.asarray(alpha, dtype=np.float64)
    b = np.asarray(beta, dtype=np.float64)
    if a.shape != (2,) or b.shape != (2,) or not np.all((a > 0.0) & (b > 0.0)):
        raise ValueError(
            f"alpha and beta must be two positive numbers each, got {alpha!r}, {beta!r}"
        )
    states = num_states(horizon, 2, 2)
    thresholds = math.comb(horizon + 2, 3)
    small = np.uint8 if horizon < 256 else np.uint16
    table_bytes = (states + 7) // 8 if force_bits else thresholds * np.dtype(small).itemsize
    _check_size(
        f"two Bernoulli arms, horizon {horizon}",
        states,
        states,
        8 * math.comb(horizon + 3, 3) + table_bytes,
        MAX_STATES_TWO_ARMED if max_states is None else max_states,
        max_bytes,
    )
    bands = _tie_band(w, 1.0)
    q = np.empty(2)
    kind = _BITS if force_bits else _THRESHOLD
    while True:
        if kind == _BITS:
            table = np.zeros((states + 7) // 8, np.uint8)
        else:
            table = np.empty(thresholds, small)
        value, monotone = _two_armed(a[0], b[0], a[1], b[1], w, bands, kind, table, q)
        if monotone:
            break
        kind = _BITS
    no_ranks = np.empty((0, 0), np.int64)
    return BellmanSolution(float(value), q, horizon, 2, 2, kind, table, no_ranks)


# --------------------------------------------------------------------------------- independent arms


@njit(cache=True, nogil=True)
def _advance(r: _Ints, top: int) -> bool:
    """Next vector of suffix sums ``r[0] >= r[1] >= ... >= r[top]`` with ``r[0]`` fixed.

    Lexicographic order, which is the order of ranks.  Returns False after the last.
    """
    i = top
    while i > 0 and r[i] == r[i - 1]:
        i -= 1
    if i == 0:
        return False
    r[i] += 1
    for j in range(i + 1, top + 1):
        r[j] = 0
    return True


@njit(cache=True, nogil=True)
def _steps(r: _Ints, ranks: _Ints, top: int, step: _Ints) -> int:
    """Rank of the row ``r`` and, per cell, by how much one more count there raises the rank.

    Cells up to ``top`` only; in the last cell the rise is one more than in the cell before.
    """
    base = 0
    rise = 0
    step[0] = 0
    for i in range(1, top + 1):
        base += ranks[i, r[i]]
        rise += ranks[i, r[i] + 1] - ranks[i, r[i]]
        step[i] = rise
    step[top + 1] = rise + 1
    return base


@njit(cache=True, nogil=True)
def _keep_best(
    arm: int, band: float, current: _Floats, best: _Floats, action: NDArray[np.int8], length: int
) -> None:
    """Running maximum along a row; a later arm must win by more than the band of ties."""
    for v in range(length):
        d = current[v] - best[v]
        if d > band:
            action[v] = arm
        if d > 0.0:
            best[v] = current[v]


@njit(cache=True, nogil=True)
def _fill_counts(horizon: int, num_categories: int, out: _Ints) -> None:
    r = np.empty(num_categories, np.int64)
    row = 0
    for n in range(horizon):
        r[:] = 0
        r[0] = n
        more = True
        while more:
            for c in range(num_categories - 1):
                out[row, c] = r[c] - r[c + 1]
            out[row, num_categories - 1] = r[num_categories - 1]
            row += 1
            more = _advance(r, num_categories - 1)


def _own_counts(horizon: int, num_categories: int) -> NDArray[np.int64]:
    """``[S, C]`` every count vector of one arm with a total below the horizon, in rank order."""
    out = np.empty((num_states(horizon, 1, num_categories), num_categories), np.int64)
    _fill_counts(horizon, num_categories, out)
    return out


@njit(cache=True, nogil=True)
def _independent(
    chances: _Floats,
    values: _Floats,
    weights: _Floats,
    bands: _Floats,
    ranks: _Ints,
    own: _Ints,
    table: NDArray[np.int8],
    q: _Floats,
) -> float:
    """Backward recursion over count vectors, row by row.

    ``chances [K, C, S]`` holds the probability that arm ``a`` next shows category ``c``, by the
    rank of its own counts; ``own`` is the rank table of one arm.  A row fixes all suffix sums but
    the last, so along it only the last two categories of the last arm change: the other arms'
    chances are constants, the last arm's lie side by side, and every successor lies in a row of
    its own at a fixed distance.  Ranks ascend, see :func:`_rank_table`, so V_t replaces V_{t+1}
    in one array.  Fills ``table`` and ``q [K]``; returns V*.
    """
    num_arms, num_categories, _ = chances.shape
    cells = num_arms * num_categories
    horizon = weights.size
    top = cells - 2
    # Room for the ranks of layer T as well: they stay zero, which is V_T.
    value = np.zeros(ranks[1, horizon + 1])
    step = np.empty(cells, np.int64)
    r = np.empty(cells, np.int64)
    best = np.empty(horizon + 1)
    action = np.empty(horizon + 1, np.int8)
    current = np.empty(horizon + 1)
    last = num_arms - 1
    for t in range(horizon - 1, -1, -1):
        w = weights[t]
        band = bands[t]
        offset = ranks[0, t]
        r[0] = t
        for i in range(1, cells):
            r[i] = 0
        more = True
        while more:
            base = _steps(r, ranks, top, step)
            length = r[top] + 1
            for a in range(num_arms):
                first = a * num_categories
                # Suffix sums of the arm alone; the last one of the last arm is the place in a row.
                after = r[first + num_categories] if a < last else 0
                index = own[0, r[first] - after]
                for c in range(1, num_categories if a < last else num_categories - 1):
                    index += own[c, r[first + c] - after]
                for v in range(length):
                    current[v] = 0.0
                if a < last:
                    for c in range(num_categories):
                        gain = w * values[a, c]
                        here = value[base + step[first + c] : base + step[first + c] + length]
                        p = chances[a, c, index]
                        for v in range(length):
                            current[v] += p * (gain + here[v])
                else:
                    for c in range(num_categories - 2):
                        gain = w * values[a, c]
                        here = value[base + step[first + c] : base + step[first + c] + length]
                        along = chances[a, c, index : index + length]
                        for v in range(length):
                            current[v] += along[v] * (gain + here[v])
                    # The last two categories in one pass, which keeps Bernoulli arms quick.
                    left = value[base + step[top] : base + step[top] + length]
                    right = value[base + step[top] + 1 : base + step[top] + 1 + length]
                    gain0 = w * values[a, num_categories - 2]
                    gain1 = w * values[a, num_categories - 1]
                    p0 = chances[a, num_categories - 2, index : index + length]
                    p1 = chances[a, num_categories - 1, index : index + length]
                    for v in range(length):
                        current[v] += p0[v] * (gain0 + left[v]) + p1[v] * (gain1 + right[v])
                if t == 0:
                    q[a] = current[0]
                if a == 0:
                    for v in range(length):
                        best[v] = current[v]
                        action[v] = 0
                else:
                    _keep_best(a, band, current, best, action, length)
            for v in range(length):
                value[base + v] = best[v]
                table[offset + base + v] = action[v]
            more = _advance(r, top)
    return q.max()


def _dense_solution(
    value: float,
    q: NDArray[np.float64],
    horizon: int,
    num_categories: int,
    table: NDArray[np.int8],
    ranks: NDArray[np.int64],
) -> BellmanSolution:
    return BellmanSolution(float(value), q, horizon, q.size, num_categories, _DENSE, table, ranks)


def _check_dense(
    what: str,
    horizon: int,
    num_arms: int,
    num_categories: int,
    work_per_state: int,
    max_states: float | None,
    max_bytes: float,
) -> int:
    """Number of states, after comparing time and memory with the limits."""
    if num_arms > 127:
        raise ValueError(f"at most 127 arms, got {num_arms}")
    states = num_states(horizon, num_arms, num_categories)
    cells = num_arms * num_categories
    _check_size(
        f"{what}, {num_arms} arms, {num_categories} categories, horizon {horizon}",
        states,
        states * work_per_state,
        # The policy, the values, and one arm's predictive table per arm.
        states
        + 8 * math.comb(horizon + cells - 1, cells - 1)
        + 8 * cells * num_states(horizon, 1, num_categories),
        MAX_STATES if max_states is None else max_states,
        max_bytes,
    )
    return states


def _check_values(values: ArrayLike, num_arms: int, num_categories: int) -> NDArray[np.float64]:
    v = np.asarray(values, dtype=np.float64)
    if v.shape not in ((num_categories,), (num_arms, num_categories)) or not np.isfinite(v).all():
        raise ValueError(
            f"values must be finite with shape [{num_categories}] or [{num_arms}, "
            f"{num_categories}], got {values!r}"
        )
    return np.ascontiguousarray(np.broadcast_to(v, (num_arms, num_categories)))


def _check_likelihood(likelihood: NDArray[np.float64]) -> None:
    if (likelihood < 0.0).any() or not np.allclose(
        likelihood.sum(axis=2), 1.0, rtol=0.0, atol=1e-9
    ):
        raise ValueError("likelihood must be non-negative and sum to one over categories")


def solve_independent(
    alpha: ArrayLike,
    values: ArrayLike,
    horizon: int,
    weights: ArrayLike | None = None,
    *,
    max_states: float | None = None,
    max_bytes: float = MAX_BYTES,
) -> BellmanSolution:
    """Optimal value and policy of independent Dirichlet-categorical arms.

    The number of states is :func:`num_states`; about 20 ns a state (5 with two Bernoulli arms), one
    byte a state for the policy.

    Parameters
    ----------
    alpha
        ``[K, C]`` Dirichlet parameters, non-negative with a positive sum per arm (a zero makes a
        category impossible, which pads arms of fewer categories).
    values
        ``[C]`` or ``[K, C]`` rewards of the categories.
    horizon, weights, max_states, max_bytes
        As in :func:`solve_two_bernoulli`.
    """
    horizon = _check_horizon(horizon)
    w = _check_weights(weights, horizon)
    prior = np.ascontiguousarray(alpha, dtype=np.float64)
    if (
        prior.ndim != 2
        or prior.shape[1] < 2
        or not np.isfinite(prior).all()
        or (prior < 0.0).any()
        or not (prior.sum(axis=1) > 0.0).all()
    ):
        raise ValueError(
            "alpha must be [K, C] with C >= 2, non-negative and with a positive sum per arm, "
            f"got {alpha!r}"
        )
    num_arms, num_categories = prior.shape
    payoff = _check_values(values, num_arms, num_categories)
    states = _check_dense(
        "independent arms", horizon, num_arms, num_categories, 1, max_states, max_bytes
    )
    counts = prior[:, None, :] + _own_counts(horizon, num_categories)[None]
    chances = counts / counts.sum(axis=2, keepdims=True)
    return _solve_tables(chances, payoff, w, states)


def _solve_tables(
    chances: NDArray[np.float64],
    payoff: NDArray[np.float64],
    weights: NDArray[np.float64],
    states: int,
) -> BellmanSolution:
    """Solve from predictive tables ``[K, S, C]``, checked arguments only."""
    num_arms, _, num_categories = chances.shape
    horizon = weights.size
    ranks = _rank_table(horizon, num_arms * num_categories)
    table = np.empty(states, np.int8)
    q = np.empty(num_arms)
    value = _independent(
        np.ascontiguousarray(np.moveaxis(chances, 2, 1)),
        payoff,
        weights,
        _tie_band(weights, np.abs(payoff).max()),
        ranks,
        _rank_table(horizon, num_categories),
        table,
        q,
    )
    return _dense_solution(value, q, horizon, num_categories, table, ranks)


def solve_points(
    prior: ArrayLike,
    likelihood: ArrayLike,
    values: ArrayLike,
    horizon: int,
    weights: ArrayLike | None = None,
    *,
    max_states: float | None = None,
    max_bytes: float = MAX_BYTES,
) -> BellmanSolution:
    """Optimal value and policy of independent arms whose parameters take N values each.

    An arm's points enter only its predictive table, so that the recursion costs what
    :func:`solve_independent` costs, however many points there are.

    Parameters
    ----------
    prior
        ``[K, N]`` probabilities of each arm's points; normalised here.
    likelihood
        ``[K, N, C]``: the probability that arm ``a`` shows category ``c`` at its point ``j``.
        A category that is impossible everywhere pads arms of fewer categories.
    values
        ``[C]`` or ``[K, C]`` rewards of the categories.
    horizon, weights, max_states, max_bytes
        As in :func:`solve_two_bernoulli`.
    """
    horizon = _check_horizon(horizon)
    w = _check_weights(weights, horizon)
    lik = np.asarray(likelihood, dtype=np.float64)
    mass = np.asarray(prior, dtype=np.float64)
    if lik.ndim != 3 or lik.shape[2] < 2:
        raise ValueError(f"likelihood must be [K, N, C] with C >= 2, got shape {lik.shape}")
    _check_likelihood(lik)
    total = mass.sum(axis=-1, keepdims=True)
    if (
        mass.shape != lik.shape[:2]
        or not (mass >= 0.0).all()
        or not np.all((total > 0) & (total < np.inf))
    ):
        raise ValueError(f"prior must be {list(lik.shape[:2])} probabilities, got {prior!r}")
    num_arms, _, num_categories = lik.shape
    payoff = _check_values(values, num_arms, num_categories)
    states = _check_dense(
        "independent arms", horizon, num_arms, num_categories, 1, max_states, max_bytes
    )
    counts = _own_counts(horizon, num_categories)
    chances = np.stack([_predictive(m, p, counts) for m, p in zip(mass / total, lik, strict=True)])
    return _solve_tables(chances, payoff, w, states)


def _predictive(
    prior: NDArray[np.float64], likelihood: NDArray[np.float64], counts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """``[S, C]`` chances of the next category after ``counts [S, C]``, for one arm's points.

    Zero throughout where the counts themselves are impossible.
    """
    keep = prior > 0.0
    prior, likelihood = prior[keep], likelihood[keep]
    with np.errstate(divide="ignore"):
        logs = np.log(likelihood)
    out = np.empty(counts.shape)
    block = max(1, _BLOCK // len(prior))
    for start in range(0, len(counts), block):
        x = counts[start : start + block]
        # A category without counts is left out: it says nothing, however unlikely it was.
        log_post = np.tile(np.log(prior), (len(x), 1))
        for c in range(x.shape[1]):
            seen = x[:, c] > 0
            log_post[seen] += x[seen, c, None] * logs[None, :, c]
        largest = log_post.max(axis=1, keepdims=True)
        post = np.exp(log_post - np.where(largest > -np.inf, largest, 0.0))
        out[start : start + block] = (
            post @ likelihood / np.maximum(post.sum(axis=1), 1e-300)[:, None]
        )
    return out


def solve(
    alpha: ArrayLike,
    values: ArrayLike,
    horizon: int,
    weights: ArrayLike | None = None,
    *,
    max_states: float | None = None,
    max_bytes: float = MAX_BYTES,
) -> BellmanSolution:
    """Independent arms, by the faster solver that applies; arguments of :func:`solve_independent`.

    Two arms with the same two rewards ``values[0] < values[1]`` are an affine image of two
    Bernoulli arms and take :func:`solve_two_bernoulli`.
    """
    prior = np.asarray(alpha, dtype=np.float64)
    payoff = np.asarray(values, dtype=np.float64)
    if prior.shape != (2, 2) or not (prior > 0.0).all() or payoff.shape not in ((2,), (2, 2)):
        return solve_independent(
            prior, payoff, horizon, weights, max_states=max_states, max_bytes=max_bytes
        )
    rows = np.broadcast_to(payoff, (2, 2))
    low, high = rows[0]
    if (rows[0] != rows[1]).any() or not low < high:
        return solve_independent(
            prior, payoff, horizon, weights, max_states=max_states, max_bytes=max_bytes
        )
    unit = solve_two_bernoulli(
        prior[:, 1], prior[:, 0], horizon, weights, max_states=max_states, max_bytes=max_bytes
    )
    if (low, high) == (0.0, 1.0):
        return unit
    shift = low * _check_weights(weights, unit.horizon).sum()
    scale = high - low
    return replace(unit, value=float(shift + scale * unit.value), q=shift + scale * unit.q)


def solve_bernoulli(
    alpha: ArrayLike,
    beta: ArrayLike,
    horizon: int,
    weights: ArrayLike | None = None,
    *,
    max_states: float | None = None,
    max_bytes: float = MAX_BYTES,
) -> BellmanSolution:
    """Optimal value and policy of Beta-Bernoulli arms, ``alpha`` and ``beta`` being ``[K]``.

    Two arms take :func:`solve_two_bernoulli`, any other number :func:`solve_independent`.
    """
    a = np.asarray(alpha, dtype=np.float64)
    b = np.asarray(beta, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape or a.size == 0 or not np.all((a > 0.0) & (b > 0.0)):
        raise ValueError(f"alpha and beta must be positive, of one length, got {alpha!r}, {beta!r}")
    return solve(
        np.stack([b, a], axis=1),
        [0.0, 1.0],
        horizon,
        weights,
        max_states=max_states,
        max_bytes=max_bytes,
    )


# ----------------------------------------------------------------------------- joint, finite priors


@njit(cache=True, nogil=True)
def _joint(
    log_prior: _Floats,
    likelihood: _Floats,
    values: _Floats,
    weights: _Floats,
    bands: _Floats,
    ranks: _Ints,
    table: NDArray[np.int8],
    q: _Floats,
) -> float:
    """Backward recursion with a joint posterior over J parameters, same layout as the above.

    The log-posterior of a row is summed once over all cells but the last two; a cell without
    counts is left out of the sum, so that an impossible category (log 0) does no harm before it
    is seen.  States of probability zero get value 0 and action 0.
    """
    num_particles, num_arms, num_categories = likelihood.shape
    cells = num_arms * num_categories
    horizon = weights.size
    top = cells - 2
    value = np.zeros(ranks[1, horizon + 1])
    log_lik = np.log(likelihood).reshape(num_particles, cells)
    step = np.empty(cells, np.int64)
    r = np.empty(cells, np.int64)
    row = np.empty(num_particles)
    post = np.empty(num_particles)
    p = np.empty(cells)
    for t in range(horizon - 1, -1, -1):
        w = weights[t]
        offset = ranks[0, t]
        r[0] = t
        for i in range(1, cells):
            r[i] = 0
        more = True
        while more:
            base = _steps(r, ranks, top, step)
            for j in range(num_particles):
                row[j] = log_prior[j]
            for i in range(top):
                x = r[i] - r[i + 1]
                if x > 0:
                    for j in range(num_particles):
                        row[j] += x * log_lik[j, i]
            for v in range(r[top] + 1):
                x = r[top] - v
                largest = -np.inf
                for j in range(num_particles):
                    s = row[j]
                    if x > 0:
                        s += x * log_lik[j, top]
                    if v > 0:
                        s += v * log_lik[j, top + 1]
                    post[j] = s
                    largest = max(largest, s)
                best = 0.0
                action = 0
                if largest > -np.inf:
                    for i in range(cells):
                        p[i] = 0.0
                    total = 0.0
                    for j in range(num_particles):
                        mass = math.exp(post[j] - largest)
                        total += mass
                        for a in range(num_arms):
                            for c in range(num_categories):
                                p[a * num_categories + c] += mass * likelihood[j, a, c]
                    for a in range(num_arms):
                        current = 0.0
                        for c in range(num_categories):
                            i = a * num_categories + c
                            current += p[i] * (w * values[a, c] + value[base + v + step[i]])
                        current /= total
                        if t == 0:
                            q[a] = current
                        if a == 0 or current - best > bands[t]:
                            action = a
                        if a == 0 or current > best:
                            best = current
                value[base + v] = best
                table[offset + base + v] = action
            more = _advance(r, top)
    return q.max()


def solve_joint(
    prior: ArrayLike,
    likelihood: ArrayLike,
    values: ArrayLike,
    horizon: int,
    weights: ArrayLike | None = None,
    *,
    max_states: float | None = None,
    max_bytes: float = MAX_BYTES,
) -> BellmanSolution:
    """Optimal value and policy when the arms share a parameter that takes J values.

    About 25 ns per state and parameter value, for few arms and categories.

    Parameters
    ----------
    prior
        ``[J]`` probabilities of the parameter's values; normalised here.
    likelihood
        ``[J, K, C]``: the probability that arm ``a`` shows category ``c`` under value ``j``.
    values
        ``[C]`` or ``[K, C]`` rewards of the categories.
    horizon, weights, max_bytes
        As in :func:`solve_two_bernoulli`.
    max_states
        Limit on states times J.
    """
    horizon = _check_horizon(horizon)
    w = _check_weights(weights, horizon)
    lik = np.ascontiguousarray(likelihood, dtype=np.float64)
    mass = np.asarray(prior, dtype=np.float64)
    if lik.ndim != 3 or lik.shape[2] < 2:
        raise ValueError(f"likelihood must be [J, K, C] with C >= 2, got shape {lik.shape}")
    _check_likelihood(lik)
    if mass.shape != lik.shape[:1] or not (mass >= 0.0).all() or not 0.0 < mass.sum() < np.inf:
        raise ValueError(f"prior must be {lik.shape[0]} probabilities, got {prior!r}")
    keep = mass > 0.0
    lik = np.ascontiguousarray(lik[keep])
    log_prior = np.log(mass[keep] / mass.sum())
    _, num_arms, num_categories = lik.shape
    payoff = _check_values(values, num_arms, num_categories)
    states = _check_dense(
        f"joint prior of {lik.shape[0]} values",
        horizon,
        num_arms,
        num_categories,
        lik.shape[0],
        max_states,
        max_bytes,
    )
    ranks = _rank_table(horizon, num_arms * num_categories)
    table = np.empty(states, np.int8)
    q = np.empty(num_arms)
    bands = _tie_band(w, np.abs(payoff).max())
    value = _joint(log_prior, lik, payoff, w, bands, ranks, table, q)
    return _dense_solution(value, q, horizon, num_categories, table, ranks)
