"""IRS.V-Zero-separable: V-Zero for many correlated arms; the other arms say all they can."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from irsppl.bandit import Bandit
from irsppl.inner.allocation import allocate
from irsppl.outcomes import Outcome
from irsppl.penalties._base import Inner, Penalty
from irsppl.penalties.v_zero import VZero


class VZeroSeparable(Penalty):
    """The n-th pull of arm a pays its mean given n - 1 own rewards and T - n of every other arm.

    At that moment no other arm can have been pulled more often, so what is revealed contains the
    history (dual feasible), and the payoff depends on (a, n) only: the allocation solves it, for
    any number of arms. Equal to V-Zero for independent arms.
    """

    name: ClassVar[str] = "irs.v-zero-separable"

    def check(self, bandit: Bandit) -> None:
        if bandit.pending and not bandit.belief.is_independent:
            raise ValueError(
                f"{self.name} with correlated arms cannot plan while pulls are pending yet: let "
                "them arrive first, or use 'irs.fh'"
            )

    def inner(self, bandit: Bandit, outcome: Outcome) -> Inner:
        if bandit.belief.is_independent:
            return VZero().inner(bandit, outcome)
        belief = outcome.belief or bandit.belief
        means = belief.separable_means(outcome.rewards, bandit.remaining)
        payoffs = jnp.pad(jnp.cumsum(means, axis=1), ((0, 0), (1, 0)))
        value, pulls = allocate(payoffs, bandit.remaining)
        return Inner(value, jnp.argmax(pulls), pulls)

    def values(self, bandit: Bandit, outcomes: Outcome) -> np.ndarray:
        if bandit.belief.is_independent:
            return VZero().values(bandit, outcomes)
        return super().values(bandit, outcomes)
