"""Whole simulated paths of rival policies that rank arms by one number each.

A rule gives every arm an index and plays the largest, the lowest-numbered arm among equals.  With
``t`` the number of the period, from 1, ``m`` an arm's mean and ``n`` the rewards seen of it:

==================  ==============================================================================
``bayes-ucb``       quantile 1 - 1/t of the belief about the arm's mean (Kaufmann, Cappe and
                    Garivier, 2012); at t = 1 that is no rule, and an arm is drawn at random
``ogi``             lam = (1 - g) m + g E[max(mu, lam)], g = 1 - 1/t, which is the same as
                    lam - m = (t - 1) E[(mu - lam)^+] (Farias and Gutin, one step of look-ahead)
``ucb1``            m + 2 s sqrt(2 log(t - 1) / n), rewards s-sub-Gaussian; s = 1/2 on [0, 1]
                    gives the formula of Auer, Cesa-Bianchi and Fischer (2002)
``kl-ucb``          largest q with n d(m, q) <= log t (Garivier and Cappe, 2011, with c = 0)
``epsilon-greedy``  m, but with probability min(1, c/t) an arm drawn at random (Auer et al., 2002)
==================  ==============================================================================

Only the largest index is wanted.  So an index is solved for only when the arm beats the best found
so far, and whether it does is one evaluation: of the CDF at that quantile, of the gain at that
lam, of the divergence at that q.

A belief is (``xi``, ``nu``) with the mean ``xi / nu``, and ``noise_sd`` for Gaussian rewards (see
:mod:`irsppl.inner.cpu.families`).
"""

import math
from statistics import NormalDist
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
from irsppl.inner.cpu.index import (
    _beta_start,
    _check_family,
    _gamma_start,
    _reward_array,
    _rows,
    normal_excess,
)
from irsppl.inner.cpu.rng import KERNEL, seed_state, uniform

__all__ = ["RULES", "kl_ucb", "ogi", "quantile", "rival_decide", "rival_paths"]

_BAYES_UCB: Final = 0
_OGI: Final = 1
_UCB1: Final = 2
_KL_UCB: Final = 3
_EPSILON_GREEDY: Final = 4

RULES: Final[dict[str, int]] = {
    "bayes-ucb": _BAYES_UCB,
    "ogi": _OGI,
    "ucb1": _UCB1,
    "kl-ucb": _KL_UCB,
    "epsilon-greedy": _EPSILON_GREEDY,
}
"""Names of the rules that these kernels know, with their codes."""

# Arms whose index is this close (in units of probability, or relative to the scale of the
# equation) to the best so far count as equal to it, so that rounding does not break ties.
_TIE: Final = 1e-12
_SQRT2: Final = math.sqrt(2.0)


# --- the laws of the means --------------------------------------------------------------------


@njit(**KERNEL)
def _law(family: int, xi: float, nu: float, x: float) -> tuple[float, float]:
    """CDF and density at ``x`` of an arm's mean; all families but the Gaussian one."""
    if x <= 0.0:
        return 0.0, 0.0
    if family == BETA_BERNOULLI:
        if x >= 1.0:
            return 1.0, 0.0
        below, p = _beta_start(xi, nu - xi, x)
        return below, p / (x * (1.0 - x))
    if family == GAMMA_POISSON:
        below, _, p = _gamma_start(xi, nu * x)
        return below, p * xi / x
    shape = nu + 1.0
    _, below, p = _gamma_start(shape, xi / x)
    return below, p * shape / x


@njit(**KERNEL)
def _gain(family: int, xi: float, nu: float, lam: float) -> tuple[float, float]:
    """E[(mu - lam)^+] and P(mu > lam); all families but the Gaussian one, ``lam > 0``."""
    m = xi / nu
    if family == BETA_BERNOULLI:
        below, p = _beta_start(xi, nu - xi, lam)
        return (m - lam) * (1.0 - below) + p / nu, 1.0 - below
    if family == GAMMA_POISSON:
        _, above, p = _gamma_start(xi, nu * lam)
        return (m - lam) * above + m * p, above
    x = xi / lam
    lower, _, p = _gamma_start(nu, x)
    # P(nu + 1, x) = P(nu, x) - x^nu e^-x / Gamma(nu + 1), and mu > lam where theta < x.
    return (m - lam) * lower + lam * p, lower - p


@njit(**KERNEL)
def _quantile(family: int, xi: float, nu: float, level: float, start: float) -> float:
    """x with CDF(x) = ``level``, by Newton's method kept inside a shrinking bracket."""
    lo = 0.0
    hi = 1.0 if family == BETA_BERNOULLI else np.inf
    x = start if lo < start < hi else xi / nu
    for _ in range(200):
        below, density = _law(family, xi, nu, x)
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


@njit(**KERNEL)
def _ogi(family: int, xi: float, nu: float, weight: float, start: float) -> float:
    """lam with lam - m = weight E[(mu - lam)^+], by Newton's method.

    The difference of the two sides is increasing and concave: every step ends left of the root,
    and from there the steps climb to it without overshooting.
    """
    m = xi / nu
    lam = max(start, m)
    if family == BETA_BERNOULLI and lam >= 1.0:
        lam = m
    for _ in range(200):
        gain, above = _gain(family, xi, nu, lam)
        step = (lam - m - weight * gain) / (1.0 + weight * above)
        new = max(lam - step, m)
        if abs(new - lam) <= 1e-14 * lam:
            return new
        lam = new
    return lam


@njit(**KERNEL)
def _ogi_offset(weight: float) -> float:
    """c with c = weight E[(Z - c)^+], Z standard normal: the Gaussian index is m + c v."""
    c = 0.0
    for _ in range(200):
        step = (c - weight * normal_excess(c)) / (1.0 + 0.5 * weight * math.erfc(c / _SQRT2))
        c = max(c - step, 0.0)
        if abs(step) <= 1e-14:
            break
    return c


# --- divergences ------------------------------------------------------------------------------


@njit(**KERNEL)
def _divergence(family: int, p: float, q: float) -> float:
    """Kullback-Leibler divergence between rewards of means ``p`` and ``q``; not Gaussian."""
    if family == BETA_BERNOULLI:
        if q >= 1.0:
            return 0.0 if p >= 1.0 else np.inf
        d = 0.0
        if p > 0.0:
            d += p * math.log(p / q)
        if p < 1.0:
            d += (1.0 - p) * math.log((1.0 - p) / (1.0 - q))
        return d
    if family == GAMMA_POISSON:
        return q - p + (p * math.log(p / q) if p > 0.0 else 0.0)
    if p <= 0.0:
        return np.inf if q > 0.0 else 0.0
    return p / q - 1.0 - math.log(p / q)


@njit(**KERNEL)
def _kl_ucb(family: int, p: float, budget: float) -> float:
    """Largest q with d(p, q) <= ``budget``; not Gaussian.

    Bisection: it is called for the few arms that beat the best one so far.
    """
    lo = p
    if family == BETA_BERNOULLI:
        hi = min(1.0, p + math.sqrt(0.5 * budget))  # Pinsker's inequality
    elif family == GAMMA_POISSON:
        hi = p + budget + math.sqrt(budget * (budget + 2.0 * p))  # d >= (q - p)^2 / (2 q)
    else:
        hi = p * math.exp(1.0 + budget)  # d >= log(q / p) - 1
    for _ in range(60):
        q = 0.5 * (lo + hi)
        if _divergence(family, p, q) <= budget:
            lo = q
        else:
            hi = q
    return 0.5 * (lo + hi)


# --- one decision -----------------------------------------------------------------------------


@njit(**KERNEL)
def _choose(
    rule: int,
    state: NDArray[np.uint64],
    family: int,
    xi: NDArray[np.float64],
    nu: NDArray[np.float64],
    scale: NDArray[np.float64],
    pulls: NDArray[np.int64],
    t: int,
    remaining: int,
    table: float,
    warm: NDArray[np.float64],
) -> int:
    """Arm to pull in period ``t`` (from 1) with ``remaining`` periods left, this one included.

    ``scale`` [K]: the noise of Gaussian rewards, or the sub-Gaussian scale of ``ucb1``.  ``table``
    is a number of the rule for this period: the standard normal's quantile or the Gaussian offset,
    or the probability of exploring.  ``warm`` [K] holds each arm's last solved index.
    """
    num_arms = xi.size
    chosen = 0
    best = -np.inf
    if rule == _BAYES_UCB and t == 1 and remaining > 1:
        return int(uniform(state) * num_arms)
    if rule == _EPSILON_GREEDY and remaining > 1 and uniform(state) < table:
        # Exploring in the last period could not pay.
        return int(uniform(state) * num_arms)
    fresh = False
    if rule in (_UCB1, _KL_UCB):
        # Every arm once, in the order of the predictive means (the rules leave the order open).
        for a in range(num_arms):
            fresh = fresh or pulls[a] == 0
    if fresh or rule == _EPSILON_GREEDY or t == 1:
        for a in range(num_arms):
            if (pulls[a] == 0 or not fresh) and xi[a] / nu[a] > best:
                best = xi[a] / nu[a]
                chosen = a
        return chosen
    log_t = math.log(t)
    for a in range(num_arms):
        m = xi[a] / nu[a]
        if rule == _UCB1:
            index = m + 2.0 * scale[a] * math.sqrt(2.0 * math.log(t - 1.0) / pulls[a])
        elif rule == _KL_UCB:
            if family == NORMAL_NORMAL:
                index = m + scale[a] * math.sqrt(2.0 * log_t / pulls[a])
            else:
                budget = log_t / pulls[a]
                if best > m and _divergence(family, m, best) >= budget * (1.0 - _TIE):
                    continue
                index = _kl_ucb(family, m, budget)
        elif family == NORMAL_NORMAL:
            index = m + scale[a] / math.sqrt(nu[a]) * table
        elif rule == _BAYES_UCB:
            level = 1.0 - 1.0 / t
            if a > 0 and _law(family, xi[a], nu[a], best)[0] >= level - _TIE:
                continue
            index = _quantile(family, xi[a], nu[a], level, max(best, warm[a]))
            warm[a] = index
        else:
            weight = t - 1.0
            if best > m:
                gain, _ = _gain(family, xi[a], nu[a], best)
                if weight * gain <= (best - m) * (1.0 + _TIE):
                    continue
            index = _ogi(family, xi[a], nu[a], weight, max(best, warm[a]))
            warm[a] = index
        if index > best:
            best = index
            chosen = a
    return chosen


@njit(**KERNEL)
def _paths(
    rule: int,
    family: int,
    xi0: NDArray[np.float64],
    nu0: NDArray[np.float64],
    scale: NDArray[np.float64],
    pulls0: NDArray[np.int64],
    period: int,
    remaining: int,
    table: NDArray[np.float64],
    rewards: NDArray,
    seeds: NDArray[np.uint64],
    state: NDArray[np.uint64],
    work: NDArray[np.float64],
    pulls: NDArray[np.int64],
    actions: NDArray[np.int16],
) -> None:
    """Fill ``actions`` [S, P], the first P decisions; ``work`` [3, K], ``pulls`` [K]: scratch."""
    num_arms = xi0.size
    xi, nu, warm = work[0], work[1], work[2]
    for s in range(seeds.size):
        seed_state(seeds[s], state)
        for a in range(num_arms):
            xi[a], nu[a], warm[a], pulls[a] = xi0[a], nu0[a], 0.0, pulls0[a]
        for i in range(actions.shape[1]):
            a = _choose(
                rule,
                state,
                family,
                xi,
                nu,
                scale,
                pulls,
                period + i + 1,
                remaining - i,
                table[i],
                warm,
            )
            actions[s, i] = a
            xi[a] += rewards[s, a, pulls[a] - pulls0[a]]
            nu[a] += 1.0
            pulls[a] += 1


# --- the functions others call ----------------------------------------------------------------


def _table(rule: int, family: int, period: int, periods: int, c: float) -> NDArray[np.float64]:
    """The number of the rule for each period, [P]: see :func:`_choose`."""
    t = np.arange(period + 1, period + periods + 1)
    if rule == _EPSILON_GREEDY:
        return np.minimum(1.0, c / t)
    if rule == _BAYES_UCB and family == NORMAL_NORMAL:
        inverse = NormalDist().inv_cdf
        return np.array([inverse(1.0 - 1.0 / n) if n > 1 else 0.0 for n in t.tolist()])
    if rule == _OGI and family == NORMAL_NORMAL:
        return np.array([_ogi_offset(n - 1.0) for n in t.tolist()])
    return np.zeros(periods)


def rival_paths(
    rule: str,
    family: int,
    xi: ArrayLike,
    nu: ArrayLike,
    scale: ArrayLike,
    rewards: ArrayLike,
    seeds: ArrayLike,
    *,
    pulls: ArrayLike = 0,
    period: int = 0,
    remaining: int | None = None,
    c: float = 1.0,
) -> NDArray[np.int16]:
    """Play a rule, once per replication.

    Parameters
    ----------
    rule
        A key of :data:`RULES`.
    family
        A family code of :mod:`irsppl.inner.cpu.families`.
    xi, nu
        [K]: the belief at the start.
    scale
        [K]: the known noise of Gaussian rewards, the sub-Gaussian scale for ``ucb1``; not used
        otherwise.
    rewards
        [S, K, P]: pull number n of arm a from now on earns ``rewards[s, a, n]`` in replication s.
    seeds
        uint64 [S], from :func:`irsppl.inner.cpu.rng.streams`; used by the random rules only.
    pulls, period
        Rewards seen of each arm and periods played before the start.
    remaining
        Periods left at the start, P if omitted.
    c
        ``epsilon-greedy`` explores with probability min(1, c / t).

    Returns
    -------
    int16 [S, P]
        The arm pulled in each period.
    """
    if rule not in RULES:
        raise ValueError(f"rule must be one of {', '.join(RULES)}, got {rule!r}")
    earned = _reward_array(rewards)
    if earned.ndim != 3:
        raise ValueError(f"rewards must have shape [S, K, P], got {earned.shape}")
    num_runs, num_arms, periods = earned.shape
    code, family = RULES[rule], _check_family(family)
    x, n, s = _rows(xi, nu, scale, (num_arms,))
    actions = np.empty((num_runs, periods), np.int16)
    _paths(
        code,
        family,
        x,
        n,
        s,
        np.ascontiguousarray(np.broadcast_to(np.asarray(pulls, np.int64), (num_arms,))),
        int(period),
        periods if remaining is None else int(remaining),
        _table(code, family, int(period), periods, float(c)),
        earned,
        np.ascontiguousarray(np.broadcast_to(np.asarray(seeds, np.uint64), (num_runs,))),
        np.empty(4, np.uint64),
        np.empty((3, num_arms)),
        np.empty(num_arms, np.int64),
        actions,
    )
    return actions


def rival_decide(
    rule: str,
    family: int,
    xi: ArrayLike,
    nu: ArrayLike,
    scale: ArrayLike,
    remaining: int,
    seeds: ArrayLike,
    *,
    pulls: ArrayLike = 0,
    period: int = 0,
    c: float = 1.0,
) -> NDArray[np.int16]:
    """One decision from one state for each of S seeds, int16 [S]; arguments of `rival_paths`."""
    streams = np.atleast_1d(np.asarray(seeds, np.uint64))
    # One period is played; what it earns is not looked at again.
    unseen = np.zeros((streams.size, np.shape(xi)[-1], 1))
    return rival_paths(
        rule,
        family,
        xi,
        nu,
        scale,
        unseen,
        streams,
        pulls=pulls,
        period=period,
        remaining=remaining,
        c=c,
    )[:, 0]


def quantile(family: int, xi: float, nu: float, noise_sd: float, level: float) -> float:
    """x with P(mu <= x) = ``level``, 0 < level < 1, of one arm's mean."""
    family = _check_family(family)
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie strictly between 0 and 1, got {level}")
    if family == NORMAL_NORMAL:
        return xi / nu + noise_sd / math.sqrt(nu) * NormalDist().inv_cdf(level)
    return float(_quantile(family, float(xi), float(nu), float(level), 0.0))


def ogi(family: int, xi: float, nu: float, noise_sd: float, t: int) -> float:
    """Optimistic Gittins index of one arm with the discount 1 - 1/t."""
    family = _check_family(family)
    if family == NORMAL_NORMAL:
        return xi / nu + noise_sd / math.sqrt(nu) * float(_ogi_offset(t - 1.0))
    return float(_ogi(family, float(xi), float(nu), t - 1.0, 0.0))


def kl_ucb(family: int, mean: float, noise_sd: float, budget: float) -> float:
    """Largest q with d(mean, q) <= ``budget``, for rewards of the family."""
    family = _check_family(family)
    if family == NORMAL_NORMAL:
        return mean + noise_sd * math.sqrt(2.0 * budget)
    if family == GAMMA_EXPONENTIAL and mean <= 0.0:
        return 0.0
    return float(_kl_ucb(family, float(mean), float(budget)))
