"""IRS.Index and IRS.Index* on the CPU, and the special functions they rest on.

One arm against a sure reward ``lam``, ``T`` periods left, along one sampled future: with the mean
``mu_i`` and the gain ``e_i = E_{y_i}[(mu - lam)^+] = Gamma_i - lam`` after ``i`` pulls, and

    D_n = sum_{i<n} (mu_i - lam + e_0 - e_i),

the relative benefit of trying the arm is

    Index   phi(lam) = max_{1<=n<=T} D_n + (T - n) (e_0 - min_{i<=n} e_i),
    Index*  phi(lam) = max_{1<=n<=T} D_n + e_0 - e_n.

Both are the paper's formulas (section "IRS.Index Policy") rearranged so that nothing of order
``T Gamma`` is added and taken away again.  An arm's index is the largest ``lam`` with
``phi >= 0``; with several futures ``phi`` is their mean.  The policy plays the largest index.

Two facts spare nearly all of the work, and neither changes a decision:

* No term from ``n`` on exceeds ``D_n + (T - n) e_0`` (Index), because ``mu_i - lam <= e_i``, and
  none after ``n`` exceeds ``D_{n+1} + (T - n) e_0`` (Index*).  A scan stops as soon as this bound
  turns negative, or as soon as one term reaches zero.  Futures are drawn only as far as scanned.
* All arms are bisected over the same sequence of ``lam``.  An arm that fails where another
  passes has the smaller index by bisection and leaves; the last one left is played.

For Index the first term is at least ``mu_0 - lam``, so an arm is always worth trying up to its
own mean.

A belief is a pair (``xi``, ``nu``) and, for Gaussian rewards, the known noise ``sd``; a reward
``r`` turns it into (``xi + r``, ``nu + 1``) and the mean is ``xi / nu``.
"""

import math
from typing import Final

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from irsppl.inner.cpu.families import (
    BETA_BERNOULLI,
    GAMMA_EXPONENTIAL,
    GAMMA_POISSON,
    NORMAL_NORMAL,
)
from irsppl.inner.cpu.rng import KERNEL, exponential, gamma, normal, poisson, seed_state, uniform

__all__ = [
    "beta_cdf",
    "expected_gain",
    "gamma_cdf",
    "index_bracket",
    "index_decide",
    "index_given",
    "index_paths",
    "normal_excess",
    "worth_trying",
]

# Bisection halvings after which arms still together count as tied.
_HALVINGS: Final = 44
# Nodes of the bisection tree, numbered like a heap, whose Beta values are kept between decisions.
_CACHED_NODES: Final = 512
# Keeps products of many small factors out of the denormals, which are a hundred times slower.
_TINY: Final = 1e-290
_LOWEST: Final = -1e300
_CONVERGED: Final = 1e-15
_HALF_LOG_2PI: Final = 0.5 * math.log(2.0 * math.pi)
_INV_SQRT_2PI: Final = 1.0 / math.sqrt(2.0 * math.pi)


# --- special functions ------------------------------------------------------------------------


def _excess_table(step: float, last: float) -> NDArray[np.float64]:
    """Rows (psi, Q, phi) at z = 0, step, ..., last: see :func:`normal_excess`."""
    z = step * np.arange(round(last / step) + 1)
    phi = np.exp(-0.5 * z * z) * _INV_SQRT_2PI
    tail = np.array([0.5 * math.erfc(v / math.sqrt(2.0)) for v in z])
    return np.stack([phi - z * tail, tail, phi], axis=1)


_EXCESS_STEP: Final = 1.0 / 32.0
_EXCESS_LAST: Final = 16.0
_EXCESS: Final = _excess_table(_EXCESS_STEP, _EXCESS_LAST)


@njit(**KERNEL, fastmath={"contract"})
def normal_excess(z: float) -> float:
    """E[(Z - z)^+] for a standard normal Z and ``z >= 0``, to 1e-14 absolutely.

    A Taylor polynomial of degree five about the nearest tabulated point: every derivative of the
    excess is a polynomial times the density, and no erfc or exp is called.
    """
    if z >= _EXCESS_LAST:
        return 0.0
    i = np.int64(z * (1.0 / _EXCESS_STEP) + 0.5)
    c = i * _EXCESS_STEP
    d = z - c
    cc = c * c
    tail = 0.5 + d * (c * (-1.0 / 6.0) + d * ((cc - 1.0) / 24.0 + d * c * (3.0 - cc) / 120.0))
    return _EXCESS[i, 0] + d * (d * _EXCESS[i, 2] * tail - _EXCESS[i, 1])


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
def _beta_term(a: float, b: float, x: float) -> float:
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
    if abs(f) < _TINY:
        f = _TINY
    c = f
    d = 0.0
    for m in range(1, 20000):
        two = a + 2.0 * m
        d_even = m * (b - m) * x / ((two - 1.0) * two)
        num = -d_odd * d_even
        d_odd = -(a + m) * (s + m) * x / (two * (two + 1.0))
        den = 1.0 + d_even + d_odd
        d = den + num * d
        if abs(d) < _TINY:
            d = _TINY
        c = den + num / c
        if abs(c) < _TINY:
            c = _TINY
        d = 1.0 / d
        step = c * d
        f *= step
        if abs(step - 1.0) < _CONVERGED:
            break
    return 1.0 / (a * f)


@njit(**KERNEL)
def _beta_start(a: float, b: float, x: float) -> tuple[float, float]:
    """CDF of Beta(a, b) at x, and x^a (1-x)^b / B(a, b)."""
    if x <= 0.0:
        return 0.0, 0.0
    if x >= 1.0:
        return 1.0, 0.0
    p = _beta_term(a, b, x)
    if x * (a + b + 2.0) <= a + 1.0:
        return p * _beta_fraction(a, b, x), p
    return 1.0 - p * _beta_fraction(b, a, 1.0 - x), p


@njit(**KERNEL)
def beta_cdf(a: float, b: float, x: float) -> float:
    """Regularised incomplete beta function I_x(a, b), for a, b > 0."""
    return _beta_start(a, b, x)[0]


@njit(**KERNEL)
def _gamma_term(a: float, x: float) -> float:
    """x^a exp(-x) / Gamma(a + 1), for a, x > 0."""
    u = (x - a) / a
    deviance = u - _log_ratio(x, a)
    return _INV_SQRT_2PI / math.sqrt(a) * math.exp(-a * deviance - _stirling_rest(a))


@njit(**KERNEL)
def _gamma_start(a: float, x: float) -> tuple[float, float, float]:
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
    c = 1.0 / _TINY
    d = 1.0 / den
    f = d
    for m in range(1, 100000):
        num = m * (a - m)
        den += 2.0
        d = den + num * d
        if abs(d) < _TINY:
            d = _TINY
        c = den + num / c
        if abs(c) < _TINY:
            c = _TINY
        d = 1.0 / d
        step = c * d
        f *= step
        if abs(step - 1.0) < _CONVERGED:
            break
    upper = p * a * f
    return 1.0 - upper, upper, p


@njit(**KERNEL)
def gamma_cdf(a: float, x: float) -> float:
    """Regularised lower incomplete gamma function P(a, x), for a > 0."""
    return _gamma_start(a, x)[0]


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
    if family == BETA_BERNOULLI:
        below, p = _beta_start(xi, nu - xi, lam)
        return (m - lam) * (1.0 - below) + p / nu
    if family == GAMMA_POISSON:
        _, upper, p = _gamma_start(xi, nu * lam)
        return (m - lam) * upper + m * p
    lower, _, p = _gamma_start(nu, xi / lam)
    return (m - lam) * lower + lam * p


# --- one arm, one lam -------------------------------------------------------------------------


@njit(**KERNEL)
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
        below, p = _beta_start(xi, nu - xi, lam)
    mean = xi / nu
    e0 = expected_gain(family, xi, nu, sd, lam)
    e = e0
    least = e0
    total = 0.0
    best = _LOWEST
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
            p = max(p, _TINY)
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


@njit(**KERNEL)
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


@njit(**KERNEL)
def _bracket(
    family: int,
    xi: NDArray[np.float64],
    nu: NDArray[np.float64],
    sd: NDArray[np.float64],
    horizon: int,
) -> tuple[float, float]:
    """Common starting interval of the bisection: see :func:`index_bracket`."""
    if family == BETA_BERNOULLI:
        return 0.0, 1.0
    lo = xi[0] / nu[0]
    hi = lo
    for a in range(xi.shape[0]):
        m = xi[a] / nu[a]
        lo = min(lo, m)
        if family == NORMAL_NORMAL:
            # T phi(x) < x^3 at x = sqrt(2 log T), hence T E[(Z - x)^+] < x.
            d = sd[a] / math.sqrt(nu[a]) * max(1.0, math.sqrt(2.0 * math.log(horizon)))
        else:
            d = m / math.sqrt(nu[a])
            while horizon * expected_gain(family, xi[a], nu[a], sd[a], m + d) >= d:
                d *= 2.0
        hi = max(hi, m + d)
    return lo, hi


@njit(cache=True, nogil=True, error_model="numpy")
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
    floor, ceiling = _bracket(family, xi, nu, sd, futures.shape[2])
    for a in range(num_arms):
        lo, hi = floor, ceiling
        if star:
            width = hi - lo
            while _mean_phi(family, xi[a], nu[a], sd[a], futures[a], lo, star) < 0.0:
                hi = lo
                lo -= width
                width *= 2.0
        for _ in range(_HALVINGS):
            lam = 0.5 * (lo + hi)
            if _mean_phi(family, xi[a], nu[a], sd[a], futures[a], lam, star) >= 0.0:
                lo = lam
            else:
                hi = lam
        indices[a] = lo
    return indices


# --- the decision -----------------------------------------------------------------------------
# Arrays are passed whole with the arm's number: a slice costs an atomic reference count, which
# would be dearer than the step it serves.


@njit(**KERNEL)
def _draw_step(
    family: int,
    arm: int,
    nu: float,
    sd: float,
    n: int,
    futures: NDArray[np.float64],
    tail: NDArray[np.float64],
    theta: NDArray[np.float64],
    state: NDArray[np.uint64],
) -> None:
    """Draw reward number ``n`` of every future of one arm into ``futures[arm, n]`` [M].

    ``tail[arm]`` [M] holds each future's xi after the rewards drawn so far and is advanced;
    ``theta[arm]`` [M] holds the sampled parameters of the two Gamma families, filled at the first
    step.  Bernoulli and Gaussian rewards come from the predictive law, which needs no parameter.
    """
    for j in range(futures.shape[2]):
        xi = tail[arm, j]
        if family == BETA_BERNOULLI:
            r = 1.0 if uniform(state) * (nu + n) < xi else 0.0
        elif family == NORMAL_NORMAL:
            inv = 1.0 / (nu + n)
            r = xi * inv + sd * math.sqrt(1.0 + inv) * normal(state)
        elif family == GAMMA_POISSON:
            if n == 0:
                theta[arm, j] = gamma(state, xi) / nu
            r = float(poisson(state, theta[arm, j]))
        else:
            if n == 0:
                theta[arm, j] = gamma(state, nu + 1.0) / xi
            r = exponential(state) / theta[arm, j]
        tail[arm, j] = xi + r
        futures[arm, n, j] = r


@njit(**KERNEL)
def _worth_one(
    family: int,
    star: bool,
    arm: int,
    xi: float,
    nu: float,
    sd: float,
    lam: float,
    horizon: int,
    e0: float,
    below: float,
    p: float,
    futures: NDArray[np.float64],
    drawn: int,
    tail: NDArray[np.float64],
    theta: NDArray[np.float64],
    state: NDArray[np.uint64],
) -> tuple[bool, int]:
    """Whether phi(lam) >= 0 along the arm's only future, ``futures[arm]`` [T, 1].

    ``drawn`` rewards of it exist; the scan draws more as it needs them.  Returns the answer and
    the number of rewards drawn by then.
    """
    mean = xi / nu
    e = e0
    least = e0
    total = 0.0
    slack = 1 if star else 0
    nu0 = nu
    for n in range(1, horizon + 1):
        total += mean - lam + (e0 - e)
        if total + (horizon - n + slack) * e0 < 0.0:
            return False, drawn
        if n == horizon and not star:
            # The last term needs no further belief.
            return total >= 0.0, drawn
        if drawn >= n:
            r = futures[arm, n - 1, 0]
        elif family == BETA_BERNOULLI:
            # The urn's step by hand; here `xi` is the tail that `_draw_step` would have to load.
            r = 1.0 if uniform(state) * nu < xi else 0.0
            futures[arm, n - 1, 0] = r
            drawn = n
        else:
            _draw_step(family, arm, nu0, sd, n - 1, futures, tail, theta, state)
            r = futures[arm, n - 1, 0]
            drawn = n
        if family == BETA_BERNOULLI:
            # Selected, not branched on: rewards are what a branch predictor cannot guess.
            success = r > 0.5
            inv = 1.0 / (xi if success else nu - xi)
            factor = (lam if success else 1.0 - lam) * nu * inv
            below -= p * (inv if success else -inv)
            p = max(p * factor, _TINY)
            xi += r
            nu += 1.0
            inv = 1.0 / nu
            mean = xi * inv
            e = (mean - lam) * (1.0 - below) + p * inv
        else:
            xi += r
            nu += 1.0
            mean = xi / nu
            e = expected_gain(family, xi, nu, sd, lam)
        if star:
            if total + (e0 - e) >= 0.0:
                return True, drawn
        else:
            least = min(least, e)
            if total + (horizon - n) * (e0 - least) >= 0.0:
                return True, drawn
    return False, drawn


@njit(**KERNEL, fastmath={"contract", "reassoc", "nsz"})
def _worth_many(
    family: int,
    star: bool,
    arm: int,
    xi: float,
    nu: float,
    sd: float,
    lam: float,
    horizon: int,
    e0: float,
    below: float,
    p: float,
    futures: NDArray[np.float64],
    drawn: int,
    tail: NDArray[np.float64],
    theta: NDArray[np.float64],
    state: NDArray[np.uint64],
    lanes: NDArray[np.float64],
) -> tuple[bool, int]:
    """Whether the mean of phi(lam) over ``futures[arm]`` [T, M] is >= 0.

    The futures advance together.  After each step every one of them has a best term so far, which
    its phi cannot fall below, and a bound that its phi cannot exceed; the scan stops when the
    sum of the former is non-negative or the sum of the latter is negative.  ``lanes`` [7, M] is
    scratch.
    """
    num = futures.shape[2]
    xs = lanes[0]
    fs = lanes[1]
    ps = lanes[2]
    es = lanes[3]
    totals = lanes[4]
    bests = lanes[5]
    least = lanes[6]
    mean = xi / nu
    for j in range(num):
        xs[j] = xi
        fs[j] = below
        ps[j] = p
        least[j] = e0
        totals[j] = mean - lam
        # The first term of Index is at least this, whatever the future.
        bests[j] = _LOWEST if star else mean - lam
    slack = 1 if star else 0
    nu0 = nu
    for n in range(1, horizon + 1):
        # Here totals[j] is D_n and bests[j] the best term before n.
        room = (horizon - n + slack) * e0
        lower = 0.0
        upper = 0.0
        for j in range(num):
            bound = totals[j] + room
            best = bests[j]
            lower += best
            upper += bound if bound > best else best
        if upper < 0.0:
            return False, drawn
        if lower >= 0.0:
            return True, drawn
        if n == horizon and not star:
            # The last term is D_n itself, which is then also the bound.
            return upper >= 0.0, drawn
        if drawn < n:
            _draw_step(family, arm, nu0, sd, n - 1, futures, tail, theta, state)
            drawn = n
        inv = 1.0 / (nu + 1.0)
        if family == BETA_BERNOULLI:
            for j in range(num):
                x = xs[j]
                success = futures[arm, n - 1, j] > 0.5
                q = ps[j] / (x if success else nu - x)
                below_j = fs[j] - (q if success else -q)
                p_j = q * nu * (lam if success else 1.0 - lam)
                p_j = p_j if p_j > _TINY else _TINY
                x += 1.0 if success else 0.0
                fs[j] = below_j
                ps[j] = p_j
                xs[j] = x
                es[j] = (x * inv - lam) * (1.0 - below_j) + p_j * inv
        else:
            for j in range(num):
                xs[j] += futures[arm, n - 1, j]
                es[j] = expected_gain(family, xs[j], nu + 1.0, sd, lam)
        nu += 1.0
        scale = float(horizon - n)
        for j in range(num):
            e = es[j]
            low = least[j]
            low = low if low < e else e
            least[j] = low
            term = totals[j] + (e0 - e if star else scale * (e0 - low))
            best = bests[j]
            bests[j] = term if term > best else best
            totals[j] += xs[j] * inv - lam + (e0 - e)
    lower = 0.0
    for j in range(num):
        lower += bests[j]
    return lower >= 0.0, drawn


@njit(**KERNEL)
def _pick(
    family: int,
    star: bool,
    xi: NDArray[np.float64],
    nu: NDArray[np.float64],
    sd: NDArray[np.float64],
    horizon: int,
    futures: NDArray[np.float64],
    drawn: NDArray[np.int64],
    tail: NDArray[np.float64],
    theta: NDArray[np.float64],
    lanes: NDArray[np.float64],
    alive: NDArray[np.int64],
    kept: NDArray[np.float64],
    kept_nodes: NDArray[np.int64],
    kept_count: NDArray[np.int64],
    state: NDArray[np.uint64],
) -> int:
    """The arm with the largest index, by one bisection common to all arms.

    Shapes: ``xi, nu, sd, drawn, alive`` [K], ``futures`` [K, >= horizon, M], ``tail, theta``
    [K, M], ``lanes`` [7, M].  ``kept`` [K, nodes, 2] holds the Beta CDF and density term at the
    nodes of the bisection tree listed in ``kept_nodes[a, :kept_count[a]]``; a negative density
    term marks an absent node.  ``drawn`` says how much of ``futures`` is given.
    """
    num_arms = xi.shape[0]
    num = futures.shape[2]
    for a in range(num_arms):
        alive[a] = a
    count = num_arms
    if count == 1:
        return 0
    if horizon == 1 and not star:
        # phi(lam) = mu_0 - lam: the myopic arm, without the bisection that a tie would cost.
        arm = 0
        for a in range(1, num_arms):
            if xi[a] / nu[a] > xi[arm] / nu[arm]:
                arm = a
        return arm
    lo, hi = _bracket(family, xi, nu, sd, horizon)
    width = hi - lo
    # For Index* nothing promises phi(lo) >= 0, so lo is tried, and lowered, first.
    probing = star
    node = 1
    halvings = 0
    while halvings < _HALVINGS:
        lam = lo if probing else 0.5 * (lo + hi)
        passed = 0
        for i in range(count):
            a = alive[i]
            mean = xi[a] / nu[a]
            if not star and lam <= mean:
                worth = True
            else:
                below, p = 0.0, 0.0
                if family == BETA_BERNOULLI:
                    if probing or node >= kept.shape[1]:
                        below, p = _beta_start(xi[a], nu[a] - xi[a], lam)
                    else:
                        if kept[a, node, 1] < 0.0:
                            below, p = _beta_start(xi[a], nu[a] - xi[a], lam)
                            kept[a, node, 0] = below
                            kept[a, node, 1] = p
                            kept_nodes[a, kept_count[a]] = node
                            kept_count[a] += 1
                        below = kept[a, node, 0]
                        p = kept[a, node, 1]
                    e0 = (mean - lam) * (1.0 - below) + p / nu[a]
                else:
                    e0 = expected_gain(family, xi[a], nu[a], sd[a], lam)
                if num == 1:
                    worth, drawn[a] = _worth_one(
                        family,
                        star,
                        a,
                        xi[a],
                        nu[a],
                        sd[a],
                        lam,
                        horizon,
                        e0,
                        below,
                        p,
                        futures,
                        drawn[a],
                        tail,
                        theta,
                        state,
                    )
                else:
                    worth, drawn[a] = _worth_many(
                        family,
                        star,
                        a,
                        xi[a],
                        nu[a],
                        sd[a],
                        lam,
                        horizon,
                        e0,
                        below,
                        p,
                        futures,
                        drawn[a],
                        tail,
                        theta,
                        state,
                        lanes,
                    )
            if worth:
                # In place: the list is overwritten only behind the arm being tried.
                alive[passed] = a
                passed += 1
        if passed == 1:
            return alive[0]
        if passed > 1:
            count = passed
        if probing:
            if passed > 0:
                probing = False
            else:
                hi = lo
                lo -= width
                width *= 2.0
                # Below the first interval the tree of kept nodes does not apply.
                node = kept.shape[1]
        else:
            halvings += 1
            if passed > 0:
                lo = lam
                node = 2 * node + 1
            else:
                hi = lam
                node = 2 * node
    return alive[0]


@njit(cache=True, nogil=True)
def _node_places(count: int) -> NDArray[np.float64]:
    """``lam`` of each node of the bisection tree over [0, 1]; node i has children 2i, 2i + 1."""
    places = np.zeros(count)
    half = 1
    for node in range(1, count):
        if node == 2 * half:
            half = node
        places[node] = (2 * (node - half) + 1) / (2.0 * half)
    return places


@njit(**KERNEL)
def _advance_kept(
    kept: NDArray[np.float64],
    nodes: NDArray[np.int64],
    places: NDArray[np.float64],
    xi: float,
    nu: float,
    reward: float,
) -> None:
    """Carry one arm's kept Beta values over a reward earned in belief (xi, nu).

    ``kept`` [nodes, 2]; the same one-step recurrence as along a sampled future.
    """
    for i in range(nodes.shape[0]):
        node = nodes[i]
        lam = places[node]
        p = kept[node, 1]
        if reward > 0.5:
            q = p / xi
            kept[node, 0] -= q
            p = q * lam * nu
        else:
            q = p / (nu - xi)
            kept[node, 0] += q
            p = q * (1.0 - lam) * nu
        kept[node, 1] = max(p, _TINY)


@njit(cache=True, nogil=True, error_model="numpy")
def _paths(
    family: int,
    xi0: NDArray[np.float64],
    nu0: NDArray[np.float64],
    sd: NDArray[np.float64],
    rewards: NDArray[np.floating],
    seeds: NDArray[np.uint64],
    num_futures: int,
    lookahead: int,
    star: bool,
    actions: NDArray[np.int16],
) -> None:
    """Play every replication to its end; fills ``actions`` [S, T]."""
    num_arms = xi0.shape[0]
    total = rewards.shape[2]
    reach = min(total, lookahead) if lookahead > 0 else total
    futures = np.empty((num_arms, reach, num_futures))
    drawn = np.empty(num_arms, np.int64)
    tail = np.empty((num_arms, num_futures))
    theta = np.empty((num_arms, num_futures))
    lanes = np.empty((7, num_futures))
    alive = np.empty(num_arms, np.int64)
    num_nodes = _CACHED_NODES if family == BETA_BERNOULLI else 1
    kept = np.empty((num_arms, num_nodes, 2))
    kept_nodes = np.empty((num_arms, num_nodes), np.int64)
    kept_count = np.empty(num_arms, np.int64)
    places = _node_places(num_nodes)
    xi = np.empty(num_arms)
    nu = np.empty(num_arms)
    pulls = np.empty(num_arms, np.int64)
    state = np.empty(4, np.uint64)
    for s in range(rewards.shape[0]):
        seed_state(seeds[s], state)
        xi[:] = xi0
        nu[:] = nu0
        pulls[:] = 0
        kept[:] = -1.0
        kept_count[:] = 0
        for t in range(total):
            horizon = min(total - t, reach)
            for a in range(num_arms):
                drawn[a] = 0
                for j in range(num_futures):
                    tail[a, j] = xi[a]
            arm = _pick(
                family,
                star,
                xi,
                nu,
                sd,
                horizon,
                futures,
                drawn,
                tail,
                theta,
                lanes,
                alive,
                kept,
                kept_nodes,
                kept_count,
                state,
            )
            actions[s, t] = arm
            r = float(rewards[s, arm, pulls[arm]])
            pulls[arm] += 1
            if family == BETA_BERNOULLI:
                _advance_kept(
                    kept[arm], kept_nodes[arm, : kept_count[arm]], places, xi[arm], nu[arm], r
                )
            xi[arm] += r
            nu[arm] += 1.0


@njit(cache=True, nogil=True, error_model="numpy")
def _decide(
    family: int,
    xi: NDArray[np.float64],
    nu: NDArray[np.float64],
    sd: NDArray[np.float64],
    remaining: NDArray[np.int64],
    seeds: NDArray[np.uint64],
    num_futures: int,
    lookahead: int,
    star: bool,
    given: NDArray[np.float64],
    actions: NDArray[np.int16],
) -> None:
    """One decision per row of ``xi, nu, sd`` [S, K]; fills ``actions`` [S].

    ``given`` [S, K, T, M] are futures to be used instead of drawn ones; [0, ...] for none.
    """
    num_arms = xi.shape[1]
    reach = 1
    for s in range(remaining.shape[0]):
        reach = max(reach, remaining[s])
    if lookahead > 0:
        reach = min(reach, lookahead)
    futures = np.empty((num_arms, reach, num_futures))
    drawn = np.empty(num_arms, np.int64)
    tail = np.empty((num_arms, num_futures))
    theta = np.empty((num_arms, num_futures))
    lanes = np.empty((7, num_futures))
    alive = np.empty(num_arms, np.int64)
    # With one node, number 0, every Beta value is computed afresh: the belief changes each time.
    kept = np.empty((num_arms, 1, 2))
    kept_nodes = np.empty((num_arms, 1), np.int64)
    kept_count = np.empty(num_arms, np.int64)
    state = np.empty(4, np.uint64)
    for s in range(xi.shape[0]):
        seed_state(seeds[s], state)
        horizon = min(remaining[s], reach)
        for a in range(num_arms):
            drawn[a] = 0
            for j in range(num_futures):
                tail[a, j] = xi[s, a]
        if given.shape[0] > 0:
            futures[:, :horizon] = given[s, :, :horizon]
            drawn[:] = horizon
        actions[s] = _pick(
            family,
            star,
            xi[s],
            nu[s],
            sd[s],
            horizon,
            futures,
            drawn,
            tail,
            theta,
            lanes,
            alive,
            kept,
            kept_nodes,
            kept_count,
            state,
        )


# --- the functions others call ----------------------------------------------------------------


def _check_family(family: int) -> int:
    known = (BETA_BERNOULLI, NORMAL_NORMAL, GAMMA_POISSON, GAMMA_EXPONENTIAL)
    if family not in known:
        raise ValueError(f"family must be one of {known}, got {family!r}")
    return int(family)


def _rows(
    xi: ArrayLike, nu: ArrayLike, noise_sd: ArrayLike, shape: tuple[int, ...]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """The three belief arrays as contiguous float64 of ``shape``."""
    out = tuple(
        np.ascontiguousarray(np.broadcast_to(np.asarray(v, np.float64), shape))
        for v in (xi, nu, noise_sd)
    )
    return out[0], out[1], out[2]


def _reward_array(rewards: ArrayLike) -> NDArray[np.floating]:
    """float32 and float64 pass as they are; anything else becomes float64."""
    array = np.asarray(rewards)
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    return np.ascontiguousarray(array)


def _check_sampling(num_futures: int, lookahead: int) -> None:
    if num_futures < 1:
        raise ValueError(f"num_futures must be at least 1, got {num_futures}")
    if lookahead < 0:
        raise ValueError(f"lookahead must be 0 (none) or positive, got {lookahead}")


def index_paths(
    family: int,
    xi: ArrayLike,
    nu: ArrayLike,
    noise_sd: ArrayLike,
    rewards: ArrayLike,
    seeds: ArrayLike,
    num_futures: int = 1,
    lookahead: int = 0,
    star: bool = False,
) -> NDArray[np.int16]:
    """Actions of IRS.Index (IRS.Index* with ``star``) over whole replications.

    Parameters
    ----------
    family
        Code of the conjugate family.
    xi, nu, noise_sd
        Prior of each arm, [K].
    rewards
        [S, K, T]: the n-th pull of arm a in replication s earns ``rewards[s, a, n]``.
    seeds
        [S], uint64: one stream per replication for the sampled futures.
    num_futures
        Sampled futures per arm and decision; the index is the root of their mean phi.
    lookahead
        The horizon of a decision is the remaining time, or this if smaller; 0 for no cap.

    Returns
    -------
    int16 [S, T]
    """
    earned = _reward_array(rewards)
    if earned.ndim != 3:
        raise ValueError(f"rewards must have shape [S, K, T], got {earned.shape}")
    _check_sampling(num_futures, lookahead)
    num_runs, num_arms, horizon = earned.shape
    x, n, s = _rows(xi, nu, noise_sd, (num_arms,))
    actions = np.empty((num_runs, horizon), np.int16)
    _paths(
        _check_family(family),
        x,
        n,
        s,
        earned,
        np.ascontiguousarray(np.broadcast_to(np.asarray(seeds, np.uint64), (num_runs,))),
        num_futures,
        lookahead,
        bool(star),
        actions,
    )
    return actions


def index_decide(
    family: int,
    xi: ArrayLike,
    nu: ArrayLike,
    noise_sd: ArrayLike,
    remaining: ArrayLike,
    seeds: ArrayLike,
    num_futures: int = 1,
    lookahead: int = 0,
    star: bool = False,
    *,
    futures: ArrayLike | None = None,
) -> NDArray[np.int16]:
    """One decision of IRS.Index (IRS.Index*) for each of S seeds.

    ``xi``, ``nu``, ``noise_sd`` are [K], one belief for all seeds, or [S, K]; ``remaining`` is a
    number or [S]; ``seeds`` uint64 [S].  ``futures`` [S, K, M, T] replaces the sampled rewards,
    with T at least the horizon of each decision (the checks use it).  Returns int16 [S].
    """
    _check_sampling(num_futures, lookahead)
    streams = np.ascontiguousarray(np.atleast_1d(np.asarray(seeds, np.uint64)))
    num_runs = streams.shape[0]
    x, n, s = _rows(xi, nu, noise_sd, (num_runs, np.shape(xi)[-1]))
    left = np.ascontiguousarray(np.broadcast_to(np.asarray(remaining, np.int64), (num_runs,)))
    if num_runs > 0 and left.min() < 1:
        raise ValueError(f"remaining must be at least 1, got {left.min()}")
    if futures is None:
        given = np.empty((0, 1, 1, 1))
    else:
        given = np.ascontiguousarray(np.moveaxis(np.asarray(futures, np.float64), 2, 3))
        num_futures = given.shape[3]
    actions = np.empty(num_runs, np.int16)
    _decide(
        _check_family(family),
        x,
        n,
        s,
        left,
        streams,
        num_futures,
        lookahead,
        bool(star),
        given,
        actions,
    )
    return actions


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
    bisection from :func:`index_bracket` finds.  Returns the arm and the indices [K].
    """
    given = np.ascontiguousarray(np.asarray(futures, np.float64))
    if given.ndim != 3:
        raise ValueError(f"futures must have shape [K, M, R], got {given.shape}")
    x, n, s = _rows(xi, nu, noise_sd, (given.shape[0],))
    indices = _index_given(_check_family(family), x, n, s, given, bool(star))
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
        _check_family(family),
        float(xi),
        float(nu),
        float(noise_sd),
        np.ascontiguousarray(np.atleast_2d(np.asarray(futures, np.float64))),
        float(lam),
        bool(star),
    )


def index_bracket(
    family: int, xi: ArrayLike, nu: ArrayLike, noise_sd: ArrayLike, horizon: int
) -> tuple[float, float]:
    """Interval (lo, hi) that the bisection for arms ``xi, nu, noise_sd`` [K] starts from.

    [0, 1] for Bernoulli rewards, otherwise from the lowest mean to a point above every index:
    beyond mean + d no arm is worth trying once ``horizon * E[(mu - mean - d)^+] < d``.  Every
    arm's Index is at least its mean.  Index* can lie below ``lo``; its search then lowers ``lo``
    by the interval's width, twice that, and so on.
    """
    x, n, s = _rows(xi, nu, noise_sd, (np.shape(xi)[-1],))
    return _bracket(_check_family(family), x, n, s, int(horizon))
