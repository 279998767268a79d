"""Independent arms with finitely many rewards: Dirichlet beliefs, or finitely many parameters."""

import math
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from irsppl.inner.arrays import Floats, Ints
from irsppl.inner.bellman import solution
from irsppl.inner.cpu.compiling import njit

# Numbers that a block of predictive rows takes while it is worked on.
_BLOCK: Final = 4_000_000


@njit(cache=True, nogil=True)
def advance(r: Ints, top: int) -> bool:
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
def steps(r: Ints, ranks: Ints, top: int, step: Ints) -> int:
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
def keep_best(
    arm: int, band: float, current: Floats, best: Floats, action: NDArray[np.int8], length: int
) -> None:
    """Running maximum along a row; a later arm must win by more than the band of ties."""
    for v in range(length):
        d = current[v] - best[v]
        if d > band:
            action[v] = arm
        if d > 0.0:
            best[v] = current[v]


@njit(cache=True, nogil=True)
def _fill_counts(horizon: int, num_categories: int, out: Ints) -> None:
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
            more = advance(r, num_categories - 1)


def _own_counts(horizon: int, num_categories: int) -> Ints:
    """``[S, C]`` every count vector of one arm with a total below the horizon, in rank order."""
    out = np.empty((solution.num_states(horizon, 1, num_categories), num_categories), np.int64)
    _fill_counts(horizon, num_categories, out)
    return out


@njit(cache=True, nogil=True)
def _independent(
    chances: Floats,
    values: Floats,
    weights: Floats,
    bands: Floats,
    ranks: Ints,
    own: Ints,
    table: NDArray[np.int8],
    q: Floats,
) -> float:
    """Backward recursion over count vectors, row by row.

    ``chances [K, C, S]`` holds the probability that arm ``a`` next shows category ``c``, by the
    rank of its own counts; ``own`` is the rank table of one arm.  A row fixes all suffix sums but
    the last, so along it only the last two categories of the last arm change: the other arms'
    chances are constants, the last arm's lie side by side, and every successor lies in a row of
    its own at a fixed distance.  Ranks ascend, see :func:`rank_table`, so V_t replaces V_{t+1}
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
            base = steps(r, ranks, top, step)
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
                    keep_best(a, band, current, best, action, length)
            for v in range(length):
                value[base + v] = best[v]
                table[offset + base + v] = action[v]
            more = advance(r, top)
    return q.max()


def check_dense(
    what: str, horizon: int, num_arms: int, num_categories: int, work_per_state: int = 1
) -> int:
    """Number of states, after comparing time and memory with the limits."""
    if num_arms > 127:
        raise ValueError(f"at most 127 arms, got {num_arms}")
    states = solution.num_states(horizon, num_arms, num_categories)
    cells = num_arms * num_categories
    # The policy, the values, and one arm's predictive table per arm.
    tables = cells * solution.num_states(horizon, 1, num_categories)
    num_bytes = states + 8 * (math.comb(horizon + cells - 1, cells - 1) + tables)
    what = f"{what}, {num_arms} arms, {num_categories} categories, horizon {horizon}"
    solution.check_size(what, states, states * work_per_state, num_bytes)
    return states


def check_values(values: ArrayLike, num_arms: int, num_categories: int) -> Floats:
    v = np.asarray(values, dtype=np.float64)
    if v.shape not in ((num_categories,), (num_arms, num_categories)) or not np.isfinite(v).all():
        raise ValueError(
            f"values must be finite with shape [{num_categories}] or [{num_arms}, "
            f"{num_categories}], got {values!r}"
        )
    return np.ascontiguousarray(np.broadcast_to(v, (num_arms, num_categories)))


def check_likelihood(likelihood: Floats) -> None:
    if (likelihood < 0.0).any() or not np.allclose(
        likelihood.sum(axis=2), 1.0, rtol=0.0, atol=1e-9
    ):
        raise ValueError("likelihood must be non-negative and sum to one over categories")


def solve_independent(
    alpha: ArrayLike, values: ArrayLike, horizon: int, weights: ArrayLike | None = None
) -> solution.BellmanSolution:
    """Optimal value and policy of independent Dirichlet-categorical arms.

    The number of states is :func:`num_states`; about 20 ns a state (5 with two Bernoulli arms), one
    byte a state for the policy.

    alpha: ``[K, C]`` Dirichlet parameters, non-negative with a positive sum per arm (a zero makes a
    category impossible, which pads arms of fewer categories). values: ``[C]`` or ``[K, C]`` rewards
    of the categories. horizon, weights: as in :func:`solve_two_bernoulli`.
    """
    horizon = solution.check_horizon(horizon)
    w = solution.check_weights(weights, horizon)
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
    payoff = check_values(values, num_arms, num_categories)
    states = check_dense("independent arms", horizon, num_arms, num_categories)
    counts = prior[:, None, :] + _own_counts(horizon, num_categories)[None]
    chances = counts / counts.sum(axis=2, keepdims=True)
    return _solve_tables(chances, payoff, w, states)


def _solve_tables(
    chances: Floats, payoff: Floats, weights: Floats, states: int
) -> solution.BellmanSolution:
    """Solve from predictive tables ``[K, S, C]``, checked arguments only."""
    num_arms, _, num_categories = chances.shape
    horizon = weights.size
    ranks = solution.rank_table(horizon, num_arms * num_categories)
    table = np.empty(states, np.int8)
    q = np.empty(num_arms)
    bands = solution.tie_band(weights, np.abs(payoff).max())
    own = solution.rank_table(horizon, num_categories)
    columns = np.ascontiguousarray(np.moveaxis(chances, 2, 1))
    value = _independent(columns, payoff, weights, bands, ranks, own, table, q)
    return solution.BellmanSolution(value, q, horizon, solution.DENSE, table, ranks)


def solve_points(
    prior: ArrayLike,
    likelihood: ArrayLike,
    values: ArrayLike,
    horizon: int,
    weights: ArrayLike | None = None,
) -> solution.BellmanSolution:
    """Optimal value and policy of independent arms whose parameters take N values each.

    An arm's points enter only its predictive table, so that the recursion costs what
    :func:`solve_independent` costs, however many points there are.

    prior: ``[K, N]`` probabilities of each arm's points; normalised here. likelihood: ``[K, N,
    C]``: the probability that arm ``a`` shows category ``c`` at its point ``j``. A category that is
    impossible everywhere pads arms of fewer categories. values: ``[C]`` or ``[K, C]`` rewards of
    the categories. horizon, weights: as in :func:`solve_two_bernoulli`.
    """
    horizon = solution.check_horizon(horizon)
    w = solution.check_weights(weights, horizon)
    lik = np.asarray(likelihood, dtype=np.float64)
    mass = np.asarray(prior, dtype=np.float64)
    if lik.ndim != 3 or lik.shape[2] < 2:
        raise ValueError(f"likelihood must be [K, N, C] with C >= 2, got shape {lik.shape}")
    check_likelihood(lik)
    total = mass.sum(axis=-1, keepdims=True)
    if (
        mass.shape != lik.shape[:2]
        or not (mass >= 0.0).all()
        or not np.all((total > 0) & (total < np.inf))
    ):
        raise ValueError(f"prior must be {list(lik.shape[:2])} probabilities, got {prior!r}")
    num_arms, _, num_categories = lik.shape
    payoff = check_values(values, num_arms, num_categories)
    states = check_dense("independent arms", horizon, num_arms, num_categories)
    counts = _own_counts(horizon, num_categories)
    chances = np.stack([_predictive(m, p, counts) for m, p in zip(mass / total, lik, strict=True)])
    return _solve_tables(chances, payoff, w, states)


def _predictive(prior: Floats, likelihood: Floats, counts: Ints) -> Floats:
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
        total = np.maximum(post.sum(axis=1), 1e-300)[:, None]
        out[start : start + block] = post @ likelihood / total
    return out
