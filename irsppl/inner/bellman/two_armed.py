"""Two Beta-Bernoulli arms, whose policy is a table of thresholds."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from irsppl.inner.arrays import Floats
from irsppl.inner.bellman import solution
from irsppl.inner.bellman.independent import solve_independent
from irsppl.inner.cpu.compiling import njit


@njit(cache=True, nogil=True)
def _two_armed_row(
    w: float,
    m1: float,
    m2: Floats,
    up: Floats,
    down: Floats,
    own: Floats,
    band: float,
    play: Floats,
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
    weights: Floats,
    bands: Floats,
    table: NDArray,
    q: Floats,
) -> tuple[float, bool]:
    """Backward recursion for two Beta-Bernoulli arms.

    One flat array holds V for all (n1, s1, s2) with n1 + s2 <= T, whatever the layer: row
    (n1, s1) has T + 1 - n1 places.  A state of layer t needs, in layer t+1, its own place, the
    next one in its row, and two rows of n1 + 1; ascending order therefore reads each before it is
    overwritten.

    Fills ``table`` and ``q [2]``; returns V* and whether the rule was monotone.
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
                place = np.float64(s1)
                for s2 in range(n2 + 1):
                    wins[s2] += play[s2]
                    places[s2] += play[s2] * place
            row = t * (t + 1) * (t + 2) // 6 + n1 * (t + 1) - n1 * (n1 - 1) // 2
            for s2 in range(n2 + 1):
                c = wins[s2]
                # c different numbers in 0..n1 add up to this much only if they are the top c.
                if 2.0 * places[s2] != c * (2.0 * n1 + 1.0 - c):
                    monotone = False
                table[row + s2] = n1 + 1 - np.int64(c)
    return value[0], monotone


def solve_two_bernoulli(
    alpha: ArrayLike, beta: ArrayLike, horizon: int, weights: ArrayLike | None = None
) -> solution.BellmanSolution:
    """Optimal value and policy of two independent Beta-Bernoulli arms.

    O(T^4 / 24) time and O(T^3 / 6) memory.  With the pulls of both arms and the successes of the
    other held fixed, the optimal rule plays arm 0 from some number of its own successes on, so per
    (t, n1, s2) that one number is stored.  The solver checks this at every state and, should it
    ever fail, leaves the bandit to :func:`solve_independent`.

    alpha, beta: ``[2]`` Beta parameters, positive. horizon: number of periods T. weights: ``[T]``
    survivor weights, ones if omitted.
    """
    horizon = solution.check_horizon(horizon)
    w = solution.check_weights(weights, horizon)
    a = np.asarray(alpha, dtype=np.float64)
    b = np.asarray(beta, dtype=np.float64)
    if a.shape != (2,) or b.shape != (2,) or not np.all((a > 0.0) & (b > 0.0)):
        raise ValueError(
            f"alpha and beta must be two positive numbers each, got {alpha!r}, {beta!r}"
        )
    states = solution.num_states(horizon, 2, 2)
    thresholds = math.comb(horizon + 2, 3)
    small = np.uint8 if horizon < 256 else np.uint16
    what, most = f"two Bernoulli arms, horizon {horizon}", solution.MAX_STATES_TWO_ARMED
    num_bytes = 8 * math.comb(horizon + 3, 3) + thresholds * np.dtype(small).itemsize
    solution.check_size(what, states, states, num_bytes, most)
    table, q = np.empty(thresholds, small), np.empty(2)
    bands = solution.tie_band(w, 1.0)
    value, monotone = _two_armed(a[0], b[0], a[1], b[1], w, bands, table, q)
    if not monotone:
        return solve_independent(np.stack([b, a], axis=1), [0.0, 1.0], horizon, w)
    no_ranks = np.empty((0, 0), np.int64)
    return solution.BellmanSolution(value, q, horizon, solution.THRESHOLD, table, no_ranks)
