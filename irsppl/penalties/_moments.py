"""Two moments of each arm's unknown mean, at the start and along futures, on the host.

Leave-one-out penalties build one-armed values from them. Approximate moments cost tightness, never
validity, so beliefs without closed forms are matched by a Beta or a Gaussian.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
import scipy

from irsppl import beliefs
from irsppl._checks import host64
from irsppl.beliefs._base import single_pulls
from irsppl.beliefs._points import PointBelief

# Draws from which the noise of rewards is estimated where there is no formula.
_DRAWS = 512


@dataclasses.dataclass(frozen=True)
class Moments:
    """mean, sd [K] of the unknown means; worth [K]: how many rewards the prior is worth.

    binary: rewards are 0 or 1, and Beta(mean worth, (1 - mean) worth) has these moments. exact: the
    belief *is* that Beta or Gaussian. normal: `normals` reads rewards as standard normal numbers;
    own_variances: `path_sds` are the belief's own.
    """

    mean: np.ndarray
    sd: np.ndarray
    worth: np.ndarray
    binary: bool
    exact: bool
    normal: bool = False
    own_variances: bool = False


def moments(belief: beliefs.Belief) -> Moments:
    sd = host64(belief.mean_sd())
    if isinstance(belief, beliefs.Conjugate):
        xi, worth = belief.natural_state()
        binary = isinstance(belief, beliefs.BetaBernoulli)
        exact = isinstance(belief, (beliefs.BetaBernoulli, beliefs.NormalNormal))
        normal = isinstance(
            belief, (beliefs.NormalNormal, beliefs.GammaExponential, beliefs.NormalInverseGamma)
        )
        own = isinstance(belief, (beliefs.GammaPoisson, beliefs.DirichletCategorical))
        return Moments(xi / worth, sd, worth, binary, exact, normal, own)
    mean = host64(belief.predictive_mean())
    if isinstance(belief, PointBelief) and belief.is_binary:
        worth = np.maximum(mean * (1 - mean) / sd**2 - 1, 1e-3)
        return Moments(mean, sd, worth, True, False)
    return Moments(mean, sd, (reward_noise(belief) / sd) ** 2, False, False)


_NOISES: dict[int, tuple[beliefs.Belief, np.ndarray]] = {}


def reward_noise(belief: beliefs.Belief) -> np.ndarray:
    """[K]: standard deviation of a reward about its mean; remembered for the latest beliefs."""
    if id(belief) not in _NOISES:
        while len(_NOISES) >= 4:
            _NOISES.pop(next(iter(_NOISES)))
        outcomes = single_pulls(belief, jax.random.split(jax.random.key(0), _DRAWS))
        apart = np.asarray(outcomes.rewards[:, :, 0] - outcomes.means, np.float64)
        _NOISES[id(belief)] = belief, np.maximum(apart.std(axis=0), 1e-6)
    return _NOISES[id(belief)][1]


def path_sds(belief: Any, rewards: np.ndarray, means: np.ndarray) -> np.ndarray | None:
    """[S or 1, K, T+1]: posterior standard deviations after 0 .. T rewards; None for 0/1 rewards.

    rewards [S, K, T], means [S, K, T+1].
    """
    found = moments(belief)
    if found.binary:
        return None
    worth = found.worth[None, :, None] + np.arange(means.shape[2])[None, None, :]
    if isinstance(belief, beliefs.GammaPoisson):
        return np.sqrt(means / worth)
    if isinstance(belief, beliefs.GammaExponential):
        return means / np.sqrt(np.maximum(worth - 1, 1))  # infinite below: any scale will do
    if isinstance(belief, beliefs.DirichletCategorical):
        squares = host64(belief.alpha) @ host64(belief.values) ** 2
        squares = (squares[None, :, None] + _sums(rewards**2)) / worth
        return np.sqrt(np.maximum(squares - means**2, 1e-12) / (worth + 1))
    if isinstance(belief, beliefs.NormalInverseGamma):
        apart = rewards - found.mean[None, :, None]
        n = np.arange(means.shape[2])[None, None, :]
        spread = _sums(apart**2) - _sums(apart) ** 2 / worth
        rate = host64(belief.rate)[None, :, None] + 0.5 * np.maximum(spread, 0)
        shape = np.maximum(host64(belief.shape)[None, :, None] + n / 2 - 1, 0.5)
        return np.sqrt(rate / shape / worth)
    start = found.sd * np.sqrt(found.worth)
    return start[None, :, None] / np.sqrt(worth)


def normals(
    belief: Any, rewards: np.ndarray, means: np.ndarray, sds: np.ndarray | None
) -> np.ndarray | None:
    """[S, K, T]: each reward as a number that is standard normal given the arm's earlier ones.

    Through the predictive law of the next reward: Gaussian, Student t or Lomax.
    """
    found = moments(belief)
    if not found.normal:
        return None
    worth = found.worth[None, :, None] + np.arange(rewards.shape[2])[None, None, :]
    apart = rewards - means[:, :, :-1]
    if isinstance(belief, beliefs.NormalNormal):
        return apart / (host64(belief.noise_sd)[None, :, None] * np.sqrt(1 + 1 / worth))
    n = np.arange(rewards.shape[2])[None, None, :]
    if isinstance(belief, beliefs.GammaExponential):
        # P(r > x) = (rate / (rate + x))^shape
        shape = worth + 1.0
        rate = means[:, :, :-1] * worth
        level = -shape * np.log1p(rewards / rate)
        # The tail that is small is the one to be turned into a number.
        upper = -scipy.special.ndtri_exp(np.minimum(level, -1e-300))
        lower = scipy.special.ndtri(-np.expm1(level))
        return np.where(level < -0.7, upper, lower)
    assert isinstance(belief, beliefs.NormalInverseGamma)
    shape = host64(belief.shape)[None, :, None] + n / 2
    spread = apart**2 * worth / (worth + 1) / 2
    rate = host64(belief.rate)[None, :, None] + _sums(spread)[:, :, :-1]
    t = np.abs(apart) / np.sqrt(rate / shape * (1 + 1 / worth))
    return -np.sign(apart) * scipy.special.ndtri(scipy.special.stdtr(2 * shape, -t))


def _sums(x: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros((*x.shape[:2], 1)), np.cumsum(x, axis=2)], axis=2)
