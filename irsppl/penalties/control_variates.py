"""Control variates: numbers of a future whose mean is known, which steady a bound. No penalties.

Two kinds. The true mean of an arm has the predictive mean as its expectation, whatever the
constraints and however the arms are correlated. And which point of its set of particles is the
truth of a future is drawn at random, so that a value less its mean given the set has mean zero
exactly, and no law of the prior is needed.
"""

from __future__ import annotations

import abc
from typing import ClassVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from irsppl._checks import host64
from irsppl.bandit import Bandit
from irsppl.beliefs import Cloud, Conjugate, LinearGaussian
from irsppl.outcomes import Outcome
from irsppl.penalties.base import ANYWHERE, Column

# Each fitted slope costs a degree of freedom.
_MOST_ARMS = 50


class ArmMean(Column):
    """mu_a."""

    host_needs: ClassVar[frozenset[str] | None] = ANYWHERE
    arm: int = eqx.field(static=True)

    @property
    def label(self) -> str:
        return f"mean of arm {self.arm}"

    def host_values(self, bandit: Bandit, outcomes: Outcome) -> np.ndarray:
        return np.asarray(outcomes.means, np.float64)[:, self.arm]


def mean_controls(bandit: Bandit) -> dict[ArmMean, float]:
    """The means with their expectations; none where the belief only approximates its prior."""
    if not isinstance(bandit.belief, (Conjugate, LinearGaussian)) or bandit.num_arms > _MOST_ARMS:
        return {}
    return {ArmMean(a): m for a, m in enumerate(host64(bandit.belief.predictive_mean()))}


class GivenSet(Column):
    """The mean of a penalty's value given the particles that a future brought."""

    of: ClassVar[str]  # the penalty

    @property
    def label(self) -> str:
        return f"{self.of} given its set"

    @abc.abstractmethod
    def per_period(self, bandit: Bandit, outcome: Outcome) -> Float[Array, ""]:
        """Of one future; traceable."""

    def traced_values(self, bandit: Bandit, outcomes: Outcome) -> np.ndarray:
        return np.asarray(_given_sets(self, bandit, outcomes), np.float64)


@eqx.filter_jit
def _given_sets(control: GivenSet, bandit: Bandit, outcomes: Outcome) -> Float[Array, " S"]:
    return bandit.remaining * jax.vmap(lambda o: control.per_period(bandit, o))(outcomes)


class TSGivenSet(GivenSet):
    """T E[max_a mu_a | set]."""

    of: ClassVar[str] = "ts"

    def per_period(self, bandit: Bandit, outcome: Outcome) -> Array:
        return outcome.belief.mean_max()


class FHGivenSet(GivenSet):
    """T E[max_a mu_hat_{a, T-1} | set], for binary rewards."""

    of: ClassVar[str] = "irs.fh"

    def per_period(self, bandit: Bandit, outcome: Outcome) -> Array:
        return outcome.belief.future_mean_max(bandit.remaining - 1, bandit.size)


def set_controls(bandit: Bandit) -> list[GivenSet]:
    """The controls that apply: none unless each future brings a set of its own."""
    belief = bandit.belief
    if not isinstance(belief, Cloud) or bandit.constraints:
        return []
    found: list[GivenSet] = [TSGivenSet()]
    if belief.is_binary and not bandit.pending:
        found.append(FHGivenSet())
    return found
