"""A demonstration of a mistake, not a feature for use: one random stream for means and rewards.

Someone who seeds NumPy with s, draws the arms' means, seeds it with s again and draws the rewards
arm by arm makes the first rewards of the first arm out of the random numbers that made the means.
They then tell more of the means than rewards should, and regrets come out low. Regrets printed in
the paper's two-armed tables agree with this scheme and not with separate streams; that it is what
happened there is an inference (docs/studies.md says how it was found and checked).
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from irsppl._checks import host64
from irsppl._fields import changed
from irsppl.bandit import Bandit
from irsppl.beliefs import Belief, BetaBernoulli, NormalNormal
from irsppl.outcomes import Outcome


def check_one_stream(bandit: Bandit) -> None:
    _check_belief(bandit.belief)
    if bandit.constraints:
        raise ValueError(
            "shared_stream shows a mistake in tables of plain bandits; it has no meaning with a "
            f"{sorted(bandit.constraints)[0]}"
        )


def _check_belief(belief: Belief) -> None:
    if not isinstance(belief, BetaBernoulli | NormalNormal):
        raise ValueError(
            "shared_stream shows a mistake in tables of Bernoulli and Gaussian arms; it has no "
            f"meaning for {type(belief).__name__}"
        )


def one_stream_outcomes(belief: Belief, horizon: int, seed: int, start: int, count: int) -> Outcome:
    """Futures `[count, ...]` whose means and rewards come from one and the same stream."""
    _check_belief(belief)
    num_arms = belief.num_arms
    means = np.empty((count, num_arms))
    rewards = np.empty((count, num_arms, horizon))
    for i in range(count):
        # The legacy generator on purpose: its way from bits to draws is part of the mistake.
        number = (seed * 2**20 + start + i) % 2**32
        first, again = np.random.RandomState(number), np.random.RandomState(number)
        if isinstance(belief, BetaBernoulli):
            means[i] = first.beta(host64(belief.alpha), host64(belief.beta))
            rewards[i] = again.binomial(1, means[i][:, None], (num_arms, horizon))
        elif isinstance(belief, NormalNormal):
            means[i] = first.normal(host64(belief.mean), host64(belief.sd))
            noise = host64(belief.noise_sd)[:, None]
            rewards[i] = again.normal(means[i][:, None], noise, (num_arms, horizon))
    dtype = belief.predictive_mean().dtype
    one = Outcome(jnp.zeros(num_arms, dtype), jnp.zeros((num_arms, horizon), dtype))
    return changed(one, means=means.astype(dtype), rewards=rewards.astype(dtype))
