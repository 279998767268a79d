"""True means of single arms: control variates where nothing better is known, no bounds.

A future's mean of arm a has the predictive mean of that arm as its expectation, whatever the
constraints and however the arms are correlated.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from irsppl._checks import host64
from irsppl.bandit import Bandit
from irsppl.beliefs import LinearGaussian
from irsppl.beliefs._conjugate import Conjugate
from irsppl.outcomes import Outcome
from irsppl.penalties._base import Inner, Penalty

# Each fitted slope costs a degree of freedom.
_MOST = 50


class ArmMean(Penalty):
    """mu_a."""

    name: ClassVar[str] = "mean of an arm"
    on_host: ClassVar[bool] = True
    bound_only: ClassVar[bool] = True
    arm: int = eqx.field(static=True)

    @property
    def label(self) -> str:
        return f"mean of arm {self.arm}"

    def inner(self, bandit: Bandit, outcome: Outcome) -> Inner:
        nothing = jnp.zeros(bandit.num_arms, jnp.int32)
        return Inner(outcome.means[self.arm], jnp.asarray(0), nothing)

    def values(self, bandit: Bandit, outcomes: Outcome) -> np.ndarray:
        return np.asarray(outcomes.means, np.float64)[:, self.arm]


def mean_controls(bandit: Bandit) -> dict[ArmMean, float]:
    """The controls with their expectations; none where the belief only approximates its prior."""
    if not isinstance(bandit.belief, (Conjugate, LinearGaussian)) or bandit.num_arms > _MOST:
        return {}
    return {ArmMean(a): m for a, m in enumerate(host64(bandit.belief.predictive_mean()))}
