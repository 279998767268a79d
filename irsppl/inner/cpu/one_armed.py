"""One arm alone against a known option: what leave-one-out penalties are built from.

``v(n, s; lam)`` is what an arm that has shown s successes in n pulls is still worth to somebody
who may always take ``lam`` per period instead and has pulls up to number ``end``:

    v(n, s) = max(0, m - lam + m v(n+1, s+1) + (1-m) v(n+1, s)),

with m = (alpha + s) / (alpha + beta + n), and 0 from ``end`` on.  Penalties need its slope in the
next reward, v(n+1, s+1) - v(n+1, s).  For other rewards than 0/1 the same recursion runs over a
Gaussian posterior mean in units of its standard deviation (see :func:`gaussian_slopes`).
"""

import math

import numpy as np
from numpy.typing import NDArray

from irsppl.inner.arrays import Floats, Ints
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.rng import KERNEL


def triangle(horizon: int) -> int:
    """Rows of a table over (n, s), s <= n < horizon; row n (n + 1) / 2 + s."""
    return horizon * (horizon + 1) // 2


@njit(**KERNEL)
def _binary(
    alpha: float, beta: float, horizon: int, lams: Floats, ends: Ints, now: Floats, slopes: NDArray
) -> None:
    """Fill ``slopes`` [rows, C]; ``now`` [horizon + 1, C] ends as v(0, 0) in row 0."""
    columns, rows = len(lams), len(slopes)
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
                if row + s < rows:
                    slopes[row + s, c] = high - low
                v = m - lams[c] + m * high + (1.0 - m) * low
                now[s, c] = v if v > 0.0 and n < ends[c] else 0.0


def binary_slopes(
    alpha: float,
    beta: float,
    horizon: int,
    lams: NDArray,
    ends: NDArray,
    dtype: type = np.float32,
    kept: int | None = None,
) -> tuple[NDArray, Floats]:
    """(slopes [triangle(kept), C], values v(0, 0) [C]) of a Beta(alpha, beta) arm.

    lams, ends: [C], the known option and the last pull of each column; kept: pulls whose slopes
    are kept, all ``horizon`` if left out.
    """
    lams, ends = np.asarray(lams, np.float64), np.asarray(ends, np.int64)
    slopes: NDArray = np.empty((triangle(horizon if kept is None else kept), len(lams)), dtype)
    now = np.empty((horizon + 1, len(lams)))
    _binary(float(alpha), float(beta), horizon, lams, ends, now, slopes)
    return slopes, now[0].copy()


@njit(**KERNEL)
def _hinges(
    alpha: float, beta: float, last: int, nodes: Floats, table: NDArray, now: Floats
) -> None:
    for n in range(last, -1, -1):
        row = n * (n + 1) // 2
        for s in range(n + 1):
            m = (alpha + s) / (alpha + beta + n)
            for c in range(len(nodes)):
                if n == last:
                    h = m - nodes[c]
                    now[s, c] = h if h > 0.0 else 0.0
                else:
                    now[s, c] = m * now[s + 1, c] + (1.0 - m) * now[s, c]
                table[row + s, c] = now[s, c]


def binary_hinges(
    alpha: float, beta: float, last: int, nodes: NDArray, dtype: type = np.float32
) -> NDArray:
    """E[(mu_hat_last - node)+ | s successes in n pulls], [triangle(last + 1), C]."""
    nodes = np.asarray(nodes, np.float64)
    table: NDArray = np.empty((triangle(last + 1), len(nodes)), dtype)
    _hinges(float(alpha), float(beta), last, nodes, table, np.empty((last + 1, len(nodes))))
    return table


# Posterior standard deviations on either side of the known option beyond which nothing is left to
# decide: below, the arm is given up; above, it is kept to the end.
REACH = 7.0
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(11)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


@njit(**KERNEL)
def _at(row: Floats, y: float, reach: float, step: float, slope: float) -> float:
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
    nodes: Floats,
    weights: Floats,
    knots: Floats,
    shares: Floats,
    now: Floats,
    mean: Floats,
    every: int,
    table: NDArray,
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
        for i in range(0, size, every):
            row = table[n, i // every]
            if len(knots) > 0:
                x = (-reach + i * step) / here
                centre = 0.0
                for j in range(len(knots)):
                    v = _at(now, (x + spread * knots[j]) * there, reach, step, slope)
                    centre += shares[j] * v
                for j in range(len(knots)):
                    v = _at(now, (x + spread * knots[j]) * there, reach, step, slope)
                    row[j] = v - centre
            else:
                low, high = max(i - 1, 0), min(i + 1, size - 1)
                row[0] = (mean[high] - mean[low]) / ((high - low) * step / here)
                middle = min(max(i, 1), size - 2)
                bend = mean[middle + 1] - 2.0 * mean[middle] + mean[middle - 1]
                row[1] = 0.5 * bend / (step / here) ** 2
        for i in range(size):
            v = (-reach + i * step) / here + mean[i]
            now[i] = v if v > 0.0 else 0.0


KNOTS = np.linspace(-4.0, 4.0, 17)


def _hat_means() -> Floats:
    """[J]: E of each hat function over KNOTS at a standard normal, straight beyond the ends."""
    density = np.exp(-(KNOTS**2) / 2) / math.sqrt(2 * math.pi)
    beyond = np.array([0.5 * math.erfc(k / math.sqrt(2)) for k in KNOTS])
    hinge = density - KNOTS * beyond  # E (e - k)+
    shares = np.empty(len(KNOTS))
    for j in range(len(KNOTS)):
        f = np.zeros(len(KNOTS))
        f[j] = 1.0
        slopes = np.diff(f) / np.diff(KNOTS)
        start = f[0] - slopes[0] * KNOTS[0]  # of the first straight piece at e = 0, its mean
        shares[j] = start + np.diff(slopes) @ hinge[1:-1]
    return shares


HAT_MEANS = _hat_means()
_MOST_COLUMNS = 281
_FINEST = 256  # nodes of the recursion for each column that is kept


def _gaussian_table(
    prior: float, horizon: int, end: int, dtype: type, knots: NDArray, shares: NDArray, entries: int
) -> tuple[NDArray, float, Floats]:
    size = _MOST_COLUMNS
    # Of an arm that is all but known, news is worth next to nothing: a coarser table will do.
    every = math.ceil(min(0.1 * math.sqrt(prior + horizon), _FINEST))
    fine = (size - 1) * every + 1
    step = 2 * REACH / (fine - 1)
    table: NDArray = np.zeros((horizon, size, entries), dtype)
    now, mean = np.empty(fine), np.empty(fine)
    nodes = (_NODES, _WEIGHTS, knots, shares)
    _gaussian(float(prior), end, REACH, step, *nodes, now, mean, every, table)
    return table, step * every, now[::every].copy()


def gaussian_slopes(
    prior: float, horizon: int, end: int, dtype: type = np.float32
) -> tuple[NDArray, float, Floats]:
    """Slope and half the curvature of E[v(n+1)] in the posterior mean, unit noise [horizon, X, 2].

    prior: how many rewards the prior is worth (noise variance / prior variance of the mean).
    Returned with the step of the even grid of [-REACH, REACH], (posterior mean - lam) / posterior
    standard deviation, and v(0) [X] in units of the noise.
    """
    nothing = np.empty(0)
    return _gaussian_table(prior, horizon, end, dtype, nothing, nothing, 2)


def gaussian_changes(
    prior: float, horizon: int, end: int, dtype: type = np.float32
) -> tuple[NDArray, float, Floats]:
    """v(n+1) less its mean, at innovations KNOTS of the next reward, unit noise [horizon, X, J].

    Straight between knots, each row has mean zero at a standard normal innovation. The rest as in
    :func:`gaussian_slopes`.
    """
    return _gaussian_table(prior, horizon, end, dtype, KNOTS, HAT_MEANS, len(KNOTS))
