"""Special functions of the CPU kernels, and E[(mu - lam)^+] of the families that are built on them.

All of them are scalar and allocate nothing. Accuracy is absolute, about 1e-14, unless stated.
"""

import math
from typing import Final

import numpy as np

from irsppl.inner.arrays import Floats
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.families import BETA_BERNOULLI, GAMMA_POISSON, NORMAL_NORMAL
from irsppl.inner.cpu.rng import KERNEL

# Keeps products of many small factors out of the denormals, which are a hundred times slower.
TINY: Final = 1e-290
_CONVERGED: Final = 1e-15
_HALF_LOG_2PI: Final = 0.5 * math.log(2.0 * math.pi)
_INV_SQRT_2PI: Final = 1.0 / math.sqrt(2.0 * math.pi)


_EXCESS_STEP: Final = 1.0 / 32.0
_EXCESS_LAST: Final = 16.0
_EXCESS_POINTS: Final = 513


def _excess_table() -> Floats:
    """(psi, Q, phi) at z = 0, step, ..., last: see :func:`normal_excess`."""
    z = _EXCESS_STEP * np.arange(_EXCESS_POINTS)
    phi = np.exp(-0.5 * z * z) * _INV_SQRT_2PI
    tail = np.array([0.5 * math.erfc(v / math.sqrt(2.0)) for v in z])
    # Flat columns one after the other: a vectorised loop gathers from each.
    return np.concatenate([phi - z * tail, tail, phi])


_EXCESS: Final = _excess_table()


@njit(**KERNEL, fastmath={"contract"})
def normal_excess(z: float) -> float:
    """E[(Z - z)^+] for a standard normal Z and ``z >= 0``, to 1e-14 absolutely.

    A Taylor polynomial of degree five about the nearest tabulated point: every derivative of the
    excess is a polynomial times the density, and no erfc or exp is called, nor is there a branch.
    """
    z = z if z < _EXCESS_LAST else _EXCESS_LAST
    i = np.int32(z * (1.0 / _EXCESS_STEP) + 0.5)
    c = i * _EXCESS_STEP
    d = z - c
    cc = c * c
    tail = 0.5 + d * (c * (-1.0 / 6.0) + d * ((cc - 1.0) / 24.0 + d * c * (3.0 - cc) / 120.0))
    return _EXCESS[i] + d * (
        d * _EXCESS[i + 2 * _EXCESS_POINTS] * tail - _EXCESS[i + _EXCESS_POINTS]
    )


@njit(**KERNEL)
def _stirling_rest(z: float) -> float:
    """log Gamma(z) less Stirling's (z - 1/2) log z - z + log(2 pi)/2, for z > 0."""
    if z < 12.0:
        return math.lgamma(z) - ((z - 0.5) * math.log(z) - z + _HALF_LOG_2PI)
    w = 1.0 / (z * z)
    return (1 / 12 + w * (-1 / 360 + w * (1 / 1260 + w * (-1 / 1680 + w / 1188)))) / z


@njit(**KERNEL)
def _log_ratio(x: float, centre: float) -> float:
    """log(x / centre), accurate also where x is close to centre."""
    u = (x - centre) / centre
    return math.log1p(u) if abs(u) < 0.5 else math.log(x / centre)


@njit(**KERNEL)
def beta_term(a: float, b: float, x: float) -> float:
    """x^a (1-x)^b / B(a, b), for 0 < x < 1.

    Taken relative to its maximum, because the difference of three large log-Gammas would lose
    the digits that the CDF needs.
    """
    n = a + b
    exponent = a * _log_ratio(x, a / n) + b * _log_ratio(1.0 - x, b / n)
    exponent += _stirling_rest(n) - _stirling_rest(a) - _stirling_rest(b)
    return _INV_SQRT_2PI * math.sqrt(a * b / n) * math.exp(exponent)


@njit(**KERNEL)
def _beta_fraction(a: float, b: float, x: float) -> float:
    """I_x(a, b) B(a, b) / (x^a (1-x)^b): DLMF 8.17.22 contracted to its even part.

    Wants x below about a / (a + b).  Each turn adds one partial quotient by the modified Lentz
    rule; the number of turns grows like sqrt(max(a, b)).
    """
    # Partial quotients of 1/(1 + d1/(1 + d2/(1 + ...))) taken two by two.
    s = a + b
    d_odd = -a * s * x / (a * (a + 1.0))
    f = 1.0 + d_odd
    if abs(f) < TINY:
        f = TINY
    c = f
    d = 0.0
    for m in range(1, 20000):
        two = a + 2.0 * m
        d_even = m * (b - m) * x / ((two - 1.0) * two)
        num = -d_odd * d_even
        d_odd = -(a + m) * (s + m) * x / (two * (two + 1.0))
        den = 1.0 + d_even + d_odd
        d = den + num * d
        if abs(d) < TINY:
            d = TINY
        c = den + num / c
        if abs(c) < TINY:
            c = TINY
        d = 1.0 / d
        step = c * d
        f *= step
        if abs(step - 1.0) < _CONVERGED:
            break
    return 1.0 / (a * f)


@njit(**KERNEL)
def beta_start(a: float, b: float, x: float) -> tuple[float, float]:
    """CDF of Beta(a, b) at x, and x^a (1-x)^b / B(a, b)."""
    if x <= 0.0:
        return 0.0, 0.0
    if x >= 1.0:
        return 1.0, 0.0
    p = beta_term(a, b, x)
    if x * (a + b + 2.0) <= a + 1.0:
        return p * _beta_fraction(a, b, x), p
    return 1.0 - p * _beta_fraction(b, a, 1.0 - x), p


@njit(**KERNEL)
def beta_cdf(a: float, b: float, x: float) -> float:
    """Regularised incomplete beta function I_x(a, b), for a, b > 0."""
    return beta_start(a, b, x)[0]


@njit(**KERNEL)
def _gamma_term(a: float, x: float) -> float:
    """x^a exp(-x) / Gamma(a + 1), for a, x > 0."""
    u = (x - a) / a
    deviance = u - _log_ratio(x, a)
    return _INV_SQRT_2PI / math.sqrt(a) * math.exp(-a * deviance - _stirling_rest(a))


@njit(**KERNEL)
def gamma_start(a: float, x: float) -> tuple[float, float, float]:
    """P(a, x), Q(a, x) and x^a exp(-x) / Gamma(a + 1), for a > 0."""
    if x <= 0.0:
        return 0.0, 1.0, 0.0
    p = _gamma_term(a, x)
    if x < a + 1.0:
        total = 1.0
        term = 1.0
        k = a
        for _ in range(100000):
            k += 1.0
            term *= x / k
            total += term
            if term < total * _CONVERGED:
                break
        lower = p * total
        return lower, 1.0 - lower, p
    # Continued fraction of the upper function (DLMF 8.9.2, contracted), by modified Lentz.
    den = x + 1.0 - a
    c = 1.0 / TINY
    d = 1.0 / den
    f = d
    for m in range(1, 100000):
        num = m * (a - m)
        den += 2.0
        d = den + num * d
        if abs(d) < TINY:
            d = TINY
        c = den + num / c
        if abs(c) < TINY:
            c = TINY
        d = 1.0 / d
        step = c * d
        f *= step
        if abs(step - 1.0) < _CONVERGED:
            break
    upper = p * a * f
    return 1.0 - upper, upper, p


@njit(**KERNEL)
def gain(family: int, xi: float, nu: float, lam: float) -> tuple[float, float]:
    """E[(mu - lam)^+] and P(mu > lam), ``lam > 0``."""
    m = xi / nu
    if family == BETA_BERNOULLI:
        below, p = beta_start(xi, nu - xi, lam)
        return (m - lam) * (1.0 - below) + p / nu, 1.0 - below
    if family == GAMMA_POISSON:
        _, above, p = gamma_start(xi, nu * lam)
        return (m - lam) * above + m * p, above
    x = xi / lam
    lower, _, p = gamma_start(nu, x)
    # P(nu + 1, x) = P(nu, x) - x^nu e^-x / Gamma(nu + 1), and mu > lam where theta < x.
    return (m - lam) * lower + lam * p, lower - p


@njit(**KERNEL)
def expected_gain(family: int, xi: float, nu: float, sd: float, lam: float) -> float:
    """E[(mu - lam)^+] of one arm in belief (xi, nu): Gamma less ``lam``.

    ======================  ==========================================================
    Beta, F and p at lam    (m - lam) (1 - F) + p / nu
    Gaussian                v psi((lam - m) / v), v = sd / sqrt(nu)
    Gamma, x = nu lam       (m - lam) Q(xi, x) + m x^xi e^-x / Gamma(xi + 1)
    1/Gamma, x = xi / lam   (m - lam) P(nu, x) + lam x^nu e^-x / Gamma(nu + 1)
    ======================  ==========================================================
    """
    m = xi / nu
    if family == NORMAL_NORMAL:
        v = sd / math.sqrt(nu)
        if lam >= m:
            return v * normal_excess((lam - m) / v)
        return m - lam + v * normal_excess((m - lam) / v)
    if lam <= 0.0:
        return m - lam
    return gain(family, xi, nu, lam)[0]
