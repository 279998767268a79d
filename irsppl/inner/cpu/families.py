"""Conjugate reward families as scalar operations on an arm's natural state.

An arm's belief is two numbers ``(xi, nu)``, with ``noise_sd`` beside them for Gaussian rewards.
After rewards ``r_1 .. r_n`` the state is ``(xi + r_1 + .. + r_n, nu + n)`` and the predictive mean
of the next reward is ``xi / nu``, in every family:

=====================  ========================================  ==============================
code                   belief about an arm                       natural state
=====================  ========================================  ==============================
``BETA_BERNOULLI``     reward 0 or 1, mean ~ Beta(alpha, beta)   xi = alpha, nu = alpha + beta
``NORMAL_NORMAL``      N(theta, s^2), theta ~ N(m, v^2)          nu = s^2 / v^2, xi = m nu
``GAMMA_POISSON``      Poisson(theta), theta ~ Gamma(xi, nu)     xi = shape, nu = rate
``GAMMA_EXPONENTIAL``  Exponential(rate theta), mean 1 / theta,  nu = shape - 1, xi = rate
                       theta ~ Gamma(shape, rate)
=====================  ========================================  ==============================

The functions dispatch on an integer code so that one compiled kernel serves all families.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from irsppl.inner.arrays import Words
from irsppl.inner.cpu import rng
from irsppl.inner.cpu.compiling import njit
from irsppl.inner.cpu.rng import APART, KERNEL

BETA_BERNOULLI: Final = 0
NORMAL_NORMAL: Final = 1
GAMMA_POISSON: Final = 2
GAMMA_EXPONENTIAL: Final = 3


@njit(**KERNEL)
def sample_mean(state: Words, family: int, xi: float, nu: float, noise_sd: float) -> float:
    """Draw mu(theta), the arm's true mean reward, from the belief ``(xi, nu)``.

    ``state`` is the random stream, uint64 [4]; ``noise_sd`` matters to Gaussian rewards only.
    """
    if family == BETA_BERNOULLI:
        return rng.beta(state, xi, nu - xi)
    if family == NORMAL_NORMAL:
        return xi / nu + noise_sd / math.sqrt(nu) * rng.normal(state)
    if family == GAMMA_POISSON:
        return rng.gamma(state, xi) / nu
    return xi / rng.gamma(state, nu + 1.0)


@njit(**KERNEL)
def sample_sum(state: Words, family: int, xi: float, nu: float, noise_sd: float, n: int) -> float:
    """Draw the sum of the arm's next ``n`` rewards from the belief; the cost does not grow with n.

    The parameter is drawn first and then the sum, whose law given the parameter is Binomial,
    Normal, Poisson or Gamma (paper, section on IRS.FH).
    """
    if n <= 0:
        return 0.0
    if family == BETA_BERNOULLI:
        return np.float64(rng.binomial(state, n, rng.beta(state, xi, nu - xi)))
    if family == NORMAL_NORMAL:
        # Both steps are Gaussian, so one draw with the summed variance has the same law.
        sd = noise_sd * math.sqrt(n * (1.0 + n / nu))
        return n * xi / nu + sd * rng.normal(state)
    if family == GAMMA_POISSON:
        return np.float64(rng.poisson(state, n * rng.gamma(state, xi) / nu))
    return rng.gamma(state, np.float64(n)) * xi / rng.gamma(state, nu + 1.0)


@njit(**APART)
def sample_path(
    state: Words,
    family: int,
    xi: float,
    nu: float,
    noise_sd: float,
    length: int,
    out: NDArray,
    start: int,
    cumulative: bool = False,
) -> float:
    """Draw one future of the arm and write its predictive means.

    ``out[start + n]``, n = 0 .. length - 1, becomes mu_hat_n, the predictive mean after the first
    n rewards of that future, or with ``cumulative`` the sum mu_hat_0 + .. + mu_hat_n.  ``out`` is
    a flat array of floats; nothing else in it is touched.  Returns the smallest mu_hat_n.

    The parameter is drawn first and then the rewards given it.  For 0/1 rewards that beats the
    Polya urn, which has the same law without a parameter: there each step waits for the one
    before.  Sums run in double precision whatever ``out`` holds.
    """
    total = xi
    mean = xi / nu
    least = mean
    summed = mean
    out[start] = mean
    if length <= 1:
        return least
    theta = sample_mean(state, family, xi, nu, noise_sd)
    if family == BETA_BERNOULLI:
        # The stream stays in registers: nothing in this loop calls a function that needs it.
        s0, s1, s2, s3 = state[0], state[1], state[2], state[3]
        for n in range(1, length):
            bits, s0, s1, s2, s3 = rng.advance(s0, s1, s2, s3)
            total += 1.0 if rng.unit(bits) < theta else 0.0
            mean = total / (nu + n)
            least = mean if mean < least else least
            summed += mean
            out[start + n] = summed if cumulative else mean
        state[0], state[1], state[2], state[3] = s0, s1, s2, s3
        return least
    none = math.exp(-theta)
    for n in range(1, length):
        if family == NORMAL_NORMAL:
            total += theta + noise_sd * rng.normal(state)
        elif family == GAMMA_EXPONENTIAL:
            total += theta * rng.exponential(state)
        elif theta < rng.POISSON_SWITCH:
            total += rng.poisson_inversion(state, theta, none)
        else:
            total += rng.poisson(state, theta)
        mean = total / (nu + n)
        least = mean if mean < least else least
        summed += mean
        out[start + n] = summed if cumulative else mean
    return least


@njit(**KERNEL)
def sample_means(
    family: int,
    xi: np.ndarray,
    nu: np.ndarray,
    noise: np.ndarray,
    seeds: np.ndarray,
    stream: np.ndarray,
    out: np.ndarray,
) -> None:
    """One draw of the arms' true means for each seed, into ``out`` [S, K]."""
    for s in range(seeds.shape[0]):
        rng.seed_state(seeds[s], stream)
        for a in range(xi.shape[0]):
            out[s, a] = sample_mean(stream, family, xi[a], nu[a], noise[a])
