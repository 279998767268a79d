"""Simulations with less noise: columns of mean zero under any policy, from what a path shows.

The reward of a pull brings news whose mean is zero given the past, whatever the policy. Weighed by
what it is worth, the news of a path explains most of why its value differs from the mean.
"""

from __future__ import annotations

import jax
import numpy as np

from irsppl import beliefs
from irsppl._running import FARTHEST
from irsppl.bandit import Bandit
from irsppl.inner.leave_one_out import options
from irsppl.outcomes import Outcome
from irsppl.penalties._moments import moments, path_sds
from irsppl.penalties.base import exact_max_after, host_future_means

# Beliefs whose posterior variances are exact, so that squared news has a known mean.
_OWN_VARIANCES = (beliefs.NormalNormal, beliefs.GammaPoisson, beliefs.DirichletCategorical)


def can_replay(bandit: Bandit) -> bool:
    """Whether paths of this bandit can be steadied."""
    belief = bandit.belief
    return (
        jax.default_backend() == "cpu"
        and belief.is_independent
        and isinstance(belief, beliefs.Conjugate)
        and not bandit.constraints
        and not bandit.pending
        and bandit.num_arms > 1
    )


class News:
    """What the rewards of paths brought beyond expectation; holds what all paths share."""

    def __init__(self, bandit: Bandit):
        self.bandit, belief = bandit, bandit.belief
        self.found = moments(belief)
        limits = (0.0, 1.0) if self.found.binary else None
        self.options = options(self.found.mean, self.found.sd, limits)
        self.best = exact_max_after(bandit, None)

    def __call__(self, futures: Outcome, actions: np.ndarray) -> np.ndarray:
        """[S, C]: columns of mean zero under any policy that does not look ahead.

        futures: S of them, drawn from the belief; actions [S, T]: the arms that were pulled.
        """
        from irsppl.inner.cpu.replay import replay

        bandit, belief = self.bandit, self.bandit.belief
        count, worth = len(actions), self.found.worth
        means = host_future_means(bandit, futures)[:count]
        horizon = means.shape[2] - 1
        rewards = np.asarray(futures.rewards, np.float64)[:count, :, :horizon]
        sds = path_sds(belief, rewards, means)
        if sds is None:
            known = worth[None, :, None] + np.arange(horizon + 1)[None, None, :]
            sds = np.sqrt(means * (1 - means) / (known + 1))
        paths = (actions, means, sds, worth)
        believed, second, *first = replay(*paths, *self.options, self.found.binary).T
        truth = np.asarray(futures.means, np.float64)[:count]
        pulls = np.stack([(actions == a).sum(axis=1) for a in range(bandit.num_arms)], axis=1)
        columns = [(pulls * truth).sum(axis=1) - believed, *first]
        if isinstance(belief, _OWN_VARIANCES):
            columns.append(second)
        if self.best is not None:
            columns.append(horizon * (truth.max(axis=1) - self.best))
        return np.stack(columns, axis=1)


def skewness(samples: np.ndarray) -> float:
    """Of the samples; 0 where they do not vary."""
    apart = samples - samples.mean()
    spread = apart.std()
    return float((apart**3).mean() / spread**3) if spread > 0 else 0.0


def constant(samples: np.ndarray, raw: np.ndarray) -> bool:
    """Whether the samples, made of `raw`, vary by rounding only."""
    return bool(samples.std() <= 1e-6 * raw.std())


def enough(samples: np.ndarray, raw: np.ndarray) -> bool:
    """Whether a normal interval of the samples' mean holds about what it promises.

    One end of a 95 % interval is missed with probability 2.5 % + 8.4 % skewness / sqrt(samples)
    (Edgeworth): less than 3.9 % here.
    """
    return constant(samples, raw) or 40 * skewness(samples) ** 2 <= len(samples)


def steadied(raw: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """[S]: `raw` [S] less the luck that `columns` [S, C] of mean zero explain.

    Its mean estimates that of `raw` without bias. The fit costs degrees of freedom: with fewer than
    20 samples for each column `raw` is given back. So it is where what the columns leave is too
    skewed for so few samples, and more than `raw`: rare losses that hardly any sample shows would
    be missing.
    """
    spread, offset = columns.std(axis=0), np.abs(columns.mean(axis=0))
    # So far from its mean of zero, a column shows rounding instead of luck.
    sound = offset * np.sqrt(len(raw)) < FARTHEST * spread
    used = columns[:, sound] / spread[sound]
    if len(raw) < 20 * max(used.shape[1], 1) or not used.shape[1]:
        return raw
    design = np.concatenate([np.ones((len(raw), 1)), used], axis=1)
    turned, lengths, directions = np.linalg.svd(design, full_matrices=False)
    kept = lengths > 1e-4 * lengths[0]
    turned, directions = turned[:, kept], directions[kept] / lengths[kept, None]
    values = turned.T @ raw
    rest, leverage = raw - used @ (directions[:, 1:].T @ values), (turned**2).sum(axis=1)
    if not enough(rest, raw) and abs(skewness(raw)) <= abs(skewness(rest)):
        return raw
    if leverage.max() > 1 - 1e-6:  # one sample alone tells what some column is worth
        return raw
    # The slopes that serve a sample are those fitted to all others. With its own, one that stands
    # out in the columns would explain more than luck away, and the mean be off; and the spread of
    # what is left now holds what the fit costs.
    own = (used * (turned @ directions[:, 1:])).sum(axis=1)
    return rest + own * (raw - turned @ values) / (1 - leverage)
