"""One arm alone against a known option: what leave-one-out penalties are built from.

``v(n, s; lam)`` is what an arm that has shown s successes in n pulls is still worth to somebody
who may always take ``lam`` per period instead and has pulls up to number ``end``:

    v(n, s) = max(0, m - lam + m v(n+1, s+1) + (1-m) v(n+1, s)),   m = (alpha + s) / (alpha + beta + n)

and 0 from ``end`` on.  Penalties need its slope in the next reward, v(n+1, s+1) - v(n+1, s).
For other rewards than 0/1 the same recursion runs over a Gaussian posterior mean in units of its
standard deviation (see :func:`gaussian_slopes`).
"""

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from irsppl.inner.cpu.rng import KERNEL

__all__ = ["binary_slopes", "gaussian_slopes", "triangle"]


def triangle(horizon: int) -> int:
    """Rows of a table over (n, s), s <= n < horizon; row n (n + 1) / 2 + s."""
    return horizon * (horizon + 1) // 2


@njit(**KERNEL)
def _binary(
    alpha: float,
    beta: float,
    horizon: int,
    lams: NDArray[np.float64],
    ends: NDArray[np.int64],
    now: NDArray[np.float64],
    slopes: NDArray[np.float32],
) -> None:
    """Fill ``slopes`` [triangle(horizon), C]; ``now`` [horizon + 1, C] ends as v(0, 0) in row 0."""
    columns = len(lams)
    for s in range(horizon + 1):
        for c in range(columns):
            now[s, c] = 0.0
    for n in range(horizon - 1, -1, -1):
        row = n * (n + 1) // 2
        for s in range(n + 1):
            m = (alpha + s) / (alpha + beta + n)
            for c in range(columns):
                # Row s + 1 still holds n + 1: it is overwritten after this one.
                low, high = now[s, c], now[s + 1, c]
                slopes[row + s, c] = high - low
                v = m - lams[c] + m * high + (1.0 - m) * low
                now[s, c] = v if v > 0.0 and n < ends[c] else 0.0


def binary_slopes(
    alpha: float, beta: float, horizon: int, lams: NDArray, ends: NDArray
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """(slopes [triangle(horizon), C], values v(0, 0) [C]) of a Beta(alpha, beta) arm.

    lams, ends: [C], the known option and the last pull of each column.
    """
    lams, ends = np.asarray(lams, np.float64), np.asarray(ends, np.int64)
    slopes = np.empty((triangle(horizon), len(lams)), np.float32)
    now = np.empty((horizon + 1, len(lams)))
    _binary(float(alpha), float(beta), horizon, lams, ends, now, slopes)
    return slopes, now[0].copy()


# Posterior standard deviations on either side of the known option beyond which nothing is left to
# decide: below, the arm is given up; above, it is kept to the end.
REACH = 7.0
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(11)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


@njit(**KERNEL)
def _at(row: NDArray[np.float64], y: float, reach: float, step: float, slope: float) -> float:
    """A function on an even grid of [-reach, reach]: 0 below it, straight above."""
    if y <= -reach:
        return 0.0
    last = len(row) - 1
    if y >= reach:
        return row[last] + slope * (y - reach)
    at = (y + reach) / step
    i = min(int(at), last - 1)
    f = at - i
    return row[i] * (1.0 - f) + row[i + 1] * f


@njit(**KERNEL)
def _gaussian(
    prior: float,
    end: int,
    reach: float,
    step: float,
    nodes: NDArray[np.float64],
    weights: NDArray[np.float64],
    now: NDArray[np.float64],
    mean: NDArray[np.float64],
    first: NDArray[np.float32],
    second: NDArray[np.float32],
) -> None:
    size = len(now)
    for i in range(size):
        now[i] = 0.0
    for n in range(end - 1, -1, -1):
        here, there = math.sqrt(prior + n), math.sqrt(prior + n + 1.0)
        spread = 1.0 / (here * there)
        slope = (end - n - 1) / there  # of v(n + 1) in units of its posterior deviation
        for i in range(size):
            x = (-reach + i * step) / here
            total = 0.0
            for q in range(len(nodes)):
                total += weights[q] * _at(now, (x + spread * nodes[q]) * there, reach, step, slope)
            mean[i] = total
        for i in range(size):
            low, high = max(i - 1, 0), min(i + 1, size - 1)
            first[n, i] = (mean[high] - mean[low]) / ((high - low) * step / here)
            middle = min(max(i, 1), size - 2)
            bend = mean[middle + 1] - 2.0 * mean[middle] + mean[middle - 1]
            second[n, i] = bend / (step / here) ** 2
        for i in range(size):
            v = (-reach + i * step) / here + mean[i]
            now[i] = v if v > 0.0 else 0.0


def gaussian_slopes(
    prior: float, horizon: int, end: int
) -> tuple[NDArray[np.float32], NDArray[np.float32], float, NDArray[np.float64]]:
    """First and second derivative of E[v(n+1)] in the posterior mean, unit noise: [horizon, X].

    prior: how many rewards the prior is worth (noise variance / prior variance of the mean).
    Returned with the step of the grid of [-REACH, REACH], on which a column is
    (posterior mean - lam) / posterior standard deviation, and v(0) [X] in units of the noise.
    """
    step = min(0.05, 0.5 / math.sqrt(prior + horizon))
    size = int(math.ceil(2 * REACH / step)) + 1
    step = 2 * REACH / (size - 1)
    first = np.zeros((horizon, size), np.float32)
    second = np.zeros((horizon, size), np.float32)
    now, mean = np.empty(size), np.empty(size)
    _gaussian(float(prior), end, REACH, step, _NODES, _WEIGHTS, now, mean, first, second)
    return first, second, step, now
