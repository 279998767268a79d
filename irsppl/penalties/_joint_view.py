"""A batch of futures of correlated arms, as leave-one-out penalties see it.

What decides on the (n+1)-th pull of arm a is at most its first n rewards and, because the pulls of
all arms number T-1 by then, the first T-1-n of every other arm. Given these, H_a(n), let a pull pay

    E[mu_a | H_a(n)] - Z_a(n),     E[Z_a(n) | H_a(n)] = 0:

V-Zero-separable with a penalty. The slope of Z may be any number that H_a(n) settles. Here it is a
one-armed value's, at the posterior given H_a(n), against the others' law after M rewards of each as
if arms were independent; beyond n = T-1-M, where H_a(n) holds fewer of them, nothing is charged.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irsppl._checks import host64
from irsppl.bandit import Bandit
from irsppl.beliefs import CorrelatedFuture, LinearGaussian
from irsppl.inner.leave_one_out import Futures, smooth_arms
from irsppl.outcomes import Outcome
from irsppl.penalties._moments import reward_noise
from irsppl.penalties._schedule import Schedule, plan_of
from irsppl.penalties._view import View
from irsppl.penalties.base import natural_means


class JointView(View):
    """`View` of correlated arms without constraints; level: the share M / T."""

    def __init__(self, bandit: Bandit, outcomes: Outcome, level: float):
        belief, horizon = bandit.belief, int(bandit.remaining)
        mean, sd = host64(belief.predictive_mean()), np.maximum(host64(belief.mean_sd()), 1e-9)
        # Innovations of a Gaussian are standard normal given H_a(n): whole changes of v can serve.
        if normal := isinstance(belief, LinearGaussian):
            noise = host64(belief.noise_sd)
        else:
            noise = reward_noise(belief)
        worth = (noise / sd) ** 2
        # Few tables for many arms: the numbers in them are approximate anyway.
        rounded = 2.0 ** (np.rint(2 * np.log2(worth)) / 2)
        start = (tuple(map(float, x)) for x in (mean, sd, rounded))
        self.arms = smooth_arms(*start, plan_of(bandit), False, normal, False)
        rewards = np.asarray(outcomes.rewards, np.float64)[:, :, :horizon]
        lone = noise[:, None] / np.sqrt(worth[:, None] + np.arange(horizon + 1))
        self.futures = Futures(rewards, natural_means((mean * worth, worth), rewards), lone[None])
        limits = np.full(bandit.num_arms, horizon)
        self.schedule = Schedule(bandit, np.full(len(rewards), horizon), None, limits)
        self.horizon, self.expected = horizon, float(horizon)
        found = _separable(bandit, outcomes)
        self._means, sds = (np.asarray(x, np.float64)[:, :, :horizon] for x in found)
        sds = np.maximum(sds, 1e-9 * sd[:, None])
        # How far the next reward moves the posterior mean, in standard deviations of the reward.
        moves = sds**2 / np.sqrt(sds**2 + noise[:, None] ** 2)
        shown = max(1, round(level * horizon))
        charged = np.arange(horizon) <= horizon - 1 - shown
        apart = (rewards - self._means) / np.sqrt(sds**2 + noise[:, None] ** 2)
        if normal:  # tables hold what a reward does to an arm that is seen alone
            lone = lone[:, :-1] ** 2 / np.sqrt(lone[:, :-1] ** 2 + noise[:, None] ** 2)
            size = noise[:, None] * moves / lone * charged
        else:
            size = moves * charged
        self.rows = self.arms.joint_rows(self._means, sds, apart, size)
        self._pending = np.zeros(bandit.num_arms, int)
        self._blend = None
        self._cdfs, self._weights = {}, {}


@eqx.filter_jit
def _separable(bandit: Bandit, outcomes: Outcome) -> tuple[Array, Array]:
    """(means, standard deviations) [S, K, N] of each arm given H_a(n)."""

    def one(outcome: Outcome) -> tuple[Array, Array]:
        n = jnp.arange(outcome.rewards.shape[1])
        own = jnp.broadcast_to(n, outcome.rewards.shape)
        others = jnp.clip(bandit.remaining - 1 - n, 0)
        future = (outcome.belief or bandit.belief).along(outcome.rewards)
        assert isinstance(future, CorrelatedFuture)
        return future.separable(own, others)

    return jax.vmap(one)(outcomes)
