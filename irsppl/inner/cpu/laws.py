"""Laws of an arm's mean in the natural families but the Gaussian one: Beta, Gamma, 1 / Gamma."""

import numpy as np

from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.families import BETA_BERNOULLI, GAMMA_POISSON
from irsppl.inner.cpu.rng import KERNEL
from irsppl.inner.cpu.special import beta_start, gamma_start


@njit(**KERNEL)
def law(family: int, xi: float, nu: float, x: float) -> tuple[float, float]:
    """CDF and density at ``x`` of an arm's mean."""
    if x <= 0.0:
        return 0.0, 0.0
    if family == BETA_BERNOULLI:
        if x >= 1.0:
            return 1.0, 0.0
        below, p = beta_start(xi, nu - xi, x)
        return below, p / (x * (1.0 - x))
    if family == GAMMA_POISSON:
        below, _, p = gamma_start(xi, nu * x)
        return below, p * xi / x
    shape = nu + 1.0
    _, below, p = gamma_start(shape, xi / x)
    return below, p * shape / x


@njit(**KERNEL)
def quantile(family: int, xi: float, nu: float, level: float, start: float) -> float:
    """x with CDF(x) = ``level``, by Newton's method kept inside a shrinking bracket."""
    lo = 0.0
    hi = 1.0 if family == BETA_BERNOULLI else np.inf
    x = start if lo < start < hi else xi / nu
    for _ in range(200):
        below, density = law(family, xi, nu, x)
        gap = below - level
        if gap < 0.0:
            lo = x
        else:
            hi = x
        new = x - gap / density if density > 0.0 else -1.0
        if not lo < new < hi:
            new = 0.5 * (lo + hi) if hi < np.inf else 2.0 * x
        if abs(new - x) <= 1e-14 * new:
            return new
        x = new
    return x
