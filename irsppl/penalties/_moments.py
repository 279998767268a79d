"""Two moments of each arm's unknown mean, at the start and along futures, on the host.

Leave-one-out penalties build one-armed values from them. Approximate moments cost tightness, never
validity, so beliefs without closed forms are matched by a Beta or a Gaussian.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from irsppl import beliefs
from irsppl._checks import host64
from irsppl.beliefs import PointBelief, single_pulls

# Draws from which the noise of rewards is estimated where there is no formula.
_DRAWS = 512


@dataclasses.dataclass(frozen=True)
class Moments:
    """mean, sd [K] of the unknown means; worth [K]: how many rewards the prior is worth.

    binary: rewards are 0 or 1, and Beta(mean worth, (1 - mean) worth) has these moments. exact: the
    belief *is* that Beta or Gaussian.
    """

    mean: np.ndarray
    sd: np.ndarray
    worth: np.ndarray
    binary: bool
    exact: bool


def moments(belief: beliefs.Belief) -> Moments:
    sd = host64(belief.mean_sd())
    if isinstance(belief, beliefs.Conjugate):
        xi, worth = belief.natural_state()
        binary = isinstance(belief, beliefs.BetaBernoulli)
        exact = isinstance(belief, (beliefs.BetaBernoulli, beliefs.NormalNormal))
        return Moments(xi / worth, sd, worth, binary, exact)
    mean = host64(belief.predictive_mean())
    if isinstance(belief, PointBelief) and belief.is_binary:
        worth = np.maximum(mean * (1 - mean) / sd**2 - 1, 1e-3)
        return Moments(mean, sd, worth, True, False)
    return Moments(mean, sd, (reward_noise(belief) / sd) ** 2, False, False)


def reward_sds(belief: beliefs.Belief) -> np.ndarray:
    """[K]: standard deviation of the next reward of each arm."""
    sd = host64(belief.mean_sd())
    if isinstance(belief, beliefs.Conjugate):  # Var(mean) = E[variance of a reward] / worth
        return sd * np.sqrt(1 + belief.natural_state()[1])
    if isinstance(belief, PointBelief) and belief.is_binary:
        mean = host64(belief.predictive_mean())
        return np.sqrt(mean * (1 - mean))
    if isinstance(belief, beliefs.LinearGaussian):
        return np.hypot(sd, host64(belief.noise_sd))
    return np.hypot(sd, reward_noise(belief))


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
    worth = found.worth[None, :, None] + np.arange(means.shape[2], dtype=float)[None, None, :]
    if isinstance(belief, beliefs.PathVariances):
        return belief.path_sds(rewards, means, worth)
    start = found.sd * np.sqrt(found.worth)
    return start[None, :, None] / np.sqrt(worth)


def normals(belief: Any, rewards: np.ndarray, means: np.ndarray) -> np.ndarray | None:
    """[S, K, T]: each reward as a number that is standard normal given the arm's earlier ones."""
    worth = moments(belief).worth[None, :, None] + np.arange(rewards.shape[2])[None, None, :]
    normal = isinstance(belief, beliefs.NormalScores)
    return belief.normal_scores(rewards, means[:, :, :-1], worth) if normal else None
