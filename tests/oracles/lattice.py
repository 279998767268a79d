"""V-EMax over the lattice of pull counts for any number of arms: plain loops, no layout tricks."""

import math

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from irsppl.inner.cpu.families import (
    BETA_BERNOULLI,
    GAMMA_EXPONENTIAL,
    GAMMA_POISSON,
    NORMAL_NORMAL,
)
from irsppl.inner.cpu.special import TINY, beta_start, gamma_start

from .rows import as_rows


@njit(nogil=True, error_model="numpy")
def _sequence(
    gammas: NDArray[np.float64], means: NDArray[np.float64], horizon: int, sequence: NDArray
) -> float:
    """Dynamic programme over the cube of counts; fills ``sequence`` [T], returns the value."""
    num_arms = means.shape[0]
    side = horizon + 1
    strides = np.ones(num_arms, np.int64)
    for a in range(num_arms - 2, -1, -1):
        strides[a] = strides[a + 1] * side
    size = strides[0] * side
    z = np.zeros(size)
    counts = np.full(num_arms, horizon)
    spent = num_arms * horizon
    # n + e_a has a larger flat number than n, so counting down meets it first.
    for flat in range(size - 1, -1, -1):
        if spent < horizon:
            best = -np.inf
            for a in range(num_arms):
                best = max(best, means[a, counts[a]] + z[flat + strides[a]])
            z[flat] = best - gammas[flat]
        a = num_arms - 1
        while a >= 0 and counts[a] == 0:
            counts[a] = horizon
            spent += horizon
            a -= 1
        if a >= 0:
            counts[a] -= 1
            spent -= 1
    counts[:] = 0
    flat = 0
    for t in range(horizon):
        arm = 0
        best = -np.inf
        for a in range(num_arms):
            v = means[a, counts[a]] + z[flat + strides[a]]
            if v > best:
                best = v
                arm = a
        sequence[t] = arm
        counts[arm] += 1
        flat += strides[arm]
    return z[0] + horizon * gammas[0]


@njit(nogil=True, error_model="numpy")
def _survival_tables(
    family: int,
    xi: NDArray[np.float64],
    nu: NDArray[np.float64],
    sd: NDArray[np.float64],
    rewards: NDArray[np.float64],
    nodes: NDArray[np.float64],
) -> NDArray[np.float64]:
    """P(mu_a > node) after each number of pulls, [K, T + 1, Q]."""
    num_arms, horizon = rewards.shape
    table = np.empty((num_arms, horizon + 1, nodes.shape[0]))
    for a in range(num_arms):
        for q in range(nodes.shape[0]):
            x = nodes[q]
            total = xi[a]
            above, p = 0.0, 0.0
            if family == BETA_BERNOULLI:
                below, p = beta_start(total, nu[a] - total, x)
                above = 1.0 - below
            for n in range(horizon + 1):
                size = nu[a] + n
                if family == NORMAL_NORMAL:
                    v = sd[a] * math.sqrt(2.0 / size)
                    above = 0.5 * math.erfc((x - total / size) / v)
                elif family == GAMMA_POISSON:
                    above = gamma_start(total, size * x)[1]
                elif family == GAMMA_EXPONENTIAL:
                    above = gamma_start(size + 1.0, total / x)[0]
                table[a, n, q] = above
                if n < horizon:
                    r = rewards[a, n]
                    if family == BETA_BERNOULLI:
                        if r > 0.5:
                            above += p / total
                            p = max(p * x * size / total, TINY)
                        else:
                            above -= p / (size - total)
                            p = max(p * (1.0 - x) * size / (size - total), TINY)
                    total += r
    return table


@njit(nogil=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})
def _gamma_cube(
    table: NDArray[np.float64], weights: NDArray[np.float64], base: float
) -> NDArray[np.float64]:
    """base + sum_q w_q (1 - prod_a F[a, n_a, q]) where sum n <= T, NaN elsewhere; flat.

    ``table`` [K, T + 1, Q] holds 1 - F: the far nodes of a heavy tail have large weights, and
    there 1 - prod F must be built from the small survival probabilities.
    """
    num_arms, side, num_nodes = table.shape
    horizon = side - 1
    gammas = np.full(side**num_arms, np.nan)
    # Of the arms before a: none[a] is the product of their F, some[a] its complement.  They
    # change only when the counts of those arms do.
    none = np.ones((num_arms, num_nodes))
    some = np.zeros((num_arms, num_nodes))
    dot = weights.copy()
    counts = np.zeros(num_arms, np.int64)
    spent = 0
    fresh = 1
    last = num_arms - 1
    flat = 0
    while True:
        for a in range(fresh, num_arms):
            for q in range(num_nodes):
                above = table[a - 1, counts[a - 1], q]
                some[a, q] = some[a - 1, q] + none[a - 1, q] * above
                none[a, q] = none[a - 1, q] * (1.0 - above)
        prefix = base
        for q in range(num_nodes):
            prefix += weights[q] * some[last, q]
            dot[q] = weights[q] * none[last, q]
        for n in range(side):
            if spent + n <= horizon:
                total = prefix
                for q in range(num_nodes):
                    total += dot[q] * table[last, n, q]
                gammas[flat + n] = total
        flat += side
        a = last - 1
        while a >= 0 and counts[a] == horizon:
            counts[a] = 0
            spent -= horizon
            a -= 1
        if a < 0:
            return gammas
        counts[a] += 1
        spent += 1
        fresh = a + 1


def _nodes(
    family: int,
    xi: NDArray[np.float64],
    nu: NDArray[np.float64],
    sd: NDArray[np.float64],
    horizon: int,
    num_nodes: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Nodes, weights and left end of the integral of 1 - prod F.

    They depend on the belief at the start alone, hence are the same over the whole lattice: then
    E[Gamma(n + e_a) | n] = Gamma(n) holds for the quadrature itself, whatever its error.
    """
    means = xi / nu
    if family != NORMAL_NORMAL:
        if num_nodes == 0:
            # About 1/sqrt(size) is the relative width of the narrowest law expected on the way.
            size = nu + horizon
            if family == GAMMA_POISSON:
                size = np.maximum(size, size * means)
            num_nodes = 48 + round(14 * math.sqrt(size.max()))
        u, w = np.polynomial.legendre.leggauss(num_nodes)
        u = 0.25 * math.pi * (u + 1.0)
        w = 0.25 * math.pi * w
        # sin^2 and tan^2 smooth the powers with which a CDF leaves 0 and 1, and the second also
        # the power tail of 1 / Gamma.
        if family == BETA_BERNOULLI:
            return np.sin(u) ** 2, 2.0 * w * np.sin(u) * np.cos(u), 0.0
        scale = float(np.max(means))
        return scale * np.tan(u) ** 2, 2.0 * scale * w * np.tan(u) / np.cos(u) ** 2, 0.0
    spread = sd / np.sqrt(nu)
    lo = float(np.max(means - 9.0 * spread))
    hi = float(np.max(means + 9.0 * spread))
    marks = (means[:, None] + np.array([-9.0, -3.0, 0.0, 3.0, 9.0]) * spread[:, None]).ravel()
    edges = np.unique(np.concatenate([[lo, hi], marks[(marks > lo) & (marks < hi)]]))
    # Every piece spans at most 6 of the sds of any arm whose law has mass in it.
    if num_nodes == 0:
        num_nodes = 16 + round(6 * math.sqrt((horizon + nu.min()) / nu.min()))
    u, w = np.polynomial.legendre.leggauss(num_nodes)
    half = 0.5 * np.diff(edges)
    centre = 0.5 * (edges[1:] + edges[:-1])
    nodes = (centre[:, None] + half[:, None] * u).ravel()
    return nodes, (half[:, None] * w).ravel(), lo


def gamma_lattice(
    family: int,
    xi: ArrayLike,
    nu: ArrayLike,
    noise_sd: ArrayLike,
    rewards: ArrayLike,
    num_nodes: int = 0,
) -> NDArray[np.float64]:
    """E[max_a mu_a] at every count vector along ``rewards`` [K, T], for any small K.

    Quadrature of 1 - prod_a F_a on nodes common to the whole lattice; ``num_nodes`` (per piece of
    the range) overrides the default, which is good to about 1e-10.  Returns float64 of shape
    (T + 1,) * K, NaN where more than T pulls are counted.
    """
    path = np.ascontiguousarray(np.asarray(rewards, np.float64))
    if path.ndim != 2:
        raise ValueError(f"rewards must have shape [K, T], got {path.shape}")
    num_arms, horizon = path.shape
    x, n, s = as_rows(xi, nu, noise_sd, (num_arms,))
    nodes, weights, base = _nodes(family, x, n, s, horizon, num_nodes)
    table = _survival_tables(family, x, n, s, path, nodes)
    return _gamma_cube(table, weights, base).reshape((horizon + 1,) * num_arms)


def emax_sequence(
    gammas: ArrayLike, mu_hat: ArrayLike, horizon: int
) -> tuple[float, NDArray[np.int32]]:
    """Value and optimal sequence of the V-EMax inner problem, any number of arms.

    Parameters
    ----------
    gammas
        Shape (T + 1,) * K, or flat in C order; read only where sum n < T.
    mu_hat
        [K, T] (or longer): posterior mean of each arm after 0, 1, ... sampled rewards.
    horizon
        T.

    Returns
    -------
    value, int32 [T]
        Ties go to the lowest arm, period by period from the first.
    """
    means = np.ascontiguousarray(np.asarray(mu_hat, np.float64))
    if means.ndim != 2 or means.shape[1] < horizon:
        raise ValueError(f"mu_hat must have shape [K, >= {horizon}], got {means.shape}")
    flat = np.ascontiguousarray(np.asarray(gammas, np.float64)).ravel()
    if flat.shape[0] != (horizon + 1) ** means.shape[0]:
        raise ValueError(
            f"gammas must hold (T + 1)^K = {(horizon + 1) ** means.shape[0]} numbers, "
            f"got {flat.shape[0]}"
        )
    sequence = np.empty(horizon, np.int32)
    return _sequence(flat, means, horizon, sequence), sequence
