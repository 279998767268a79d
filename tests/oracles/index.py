"""The index of an arm along given futures: every phi in full, every arm by its own bisection.

The formulas are in `irsppl.engine.index`.
"""

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from irsppl.engine.families.futures import bracket
from irsppl.engine.index import HALVINGS
from irsppl.inner.cpu.families import BETA_BERNOULLI
from irsppl.inner.cpu.special import TINY, beta_start, expected_gain

from .rows import as_rows

LOWEST = -1e300


@njit(error_model="numpy")
def _phi(
    family: int,
    xi: float,
    nu: float,
    sd: float,
    rewards: NDArray[np.float64],
    lam: float,
    star: bool,
) -> float:
    """phi(lam) along one future, ``rewards`` [T], with nothing cut short."""
    horizon = rewards.shape[0]
    below, p = 0.0, 0.0
    if family == BETA_BERNOULLI:
        below, p = beta_start(xi, nu - xi, lam)
    mean = xi / nu
    e0 = expected_gain(family, xi, nu, sd, lam)
    e = e0
    least = e0
    total = 0.0
    best = LOWEST
    for n in range(1, horizon + 1):
        total += mean - lam + (e0 - e)
        r = rewards[n - 1]
        if family == BETA_BERNOULLI:
            if r > 0.5:
                below -= p / xi
                p *= lam * nu / xi
            else:
                below += p / (nu - xi)
                p *= (1.0 - lam) * nu / (nu - xi)
            p = max(p, TINY)
        xi += r
        nu += 1.0
        mean = xi / nu
        if family == BETA_BERNOULLI:
            e = (mean - lam) * (1.0 - below) + p / nu
        else:
            e = expected_gain(family, xi, nu, sd, lam)
        least = min(least, e)
        best = max(best, total + (e0 - e if star else (horizon - n) * (e0 - least)))
    return best


@njit(error_model="numpy")
def _mean_phi(
    family: int,
    xi: float,
    nu: float,
    sd: float,
    futures: NDArray[np.float64],
    lam: float,
    star: bool,
) -> float:
    """Mean of phi(lam) over ``futures`` [M, T]."""
    total = 0.0
    for j in range(futures.shape[0]):
        total += _phi(family, xi, nu, sd, futures[j], lam, star)
    return total / futures.shape[0]


@njit(error_model="numpy")
def _index_given(
    family: int,
    xi: NDArray[np.float64],
    nu: NDArray[np.float64],
    sd: NDArray[np.float64],
    futures: NDArray[np.float64],
    star: bool,
) -> NDArray[np.float64]:
    """Index of every arm by its own bisection, every phi evaluated in full."""
    num_arms = xi.shape[0]
    indices = np.empty(num_arms)
    floor, ceiling = bracket(family, xi, nu, sd, futures.shape[2])
    for a in range(num_arms):
        lo, hi = floor, ceiling
        if star:
            width = hi - lo
            while _mean_phi(family, xi[a], nu[a], sd[a], futures[a], lo, star) < 0.0:
                hi = lo
                lo -= width
                width *= 2.0
        for _ in range(HALVINGS):
            lam = 0.5 * (lo + hi)
            if _mean_phi(family, xi[a], nu[a], sd[a], futures[a], lam, star) >= 0.0:
                lo = lam
            else:
                hi = lam
        indices[a] = lo
    return indices


def index_given(
    family: int,
    xi: ArrayLike,
    nu: ArrayLike,
    noise_sd: ArrayLike,
    futures: ArrayLike,
    star: bool = False,
) -> tuple[int, NDArray[np.float64]]:
    """Chosen arm and every arm's index, nothing cut short, for ``futures`` [K, M, R].

    R is the horizon of the decision.  Where phi has several roots the index is the one that
    bisection from the common bracket finds.  Returns the arm and the indices [K].
    """
    given = np.ascontiguousarray(np.asarray(futures, np.float64))
    if given.ndim != 3:
        raise ValueError(f"futures must have shape [K, M, R], got {given.shape}")
    x, n, s = as_rows(xi, nu, noise_sd, (given.shape[0],))
    indices = _index_given(family, x, n, s, given, bool(star))
    return int(np.argmax(indices)), indices


def worth_trying(
    family: int,
    xi: float,
    nu: float,
    noise_sd: float,
    futures: ArrayLike,
    lam: float,
    star: bool = False,
) -> float:
    """Mean of phi(lam) of one arm over ``futures`` [M, R]; worth trying if not negative."""
    return _mean_phi(
        family,
        float(xi),
        float(nu),
        float(noise_sd),
        np.ascontiguousarray(np.atleast_2d(np.asarray(futures, np.float64))),
        float(lam),
        bool(star),
    )
