"""No penalty: the clairvoyant collects the realised rewards. The loosest bound, for teaching."""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irsppl.bandit import Bandit
from irsppl.inner.allocation import allocate, allocate_batch
from irsppl.outcomes import Outcome
from irsppl.penalties._base import Inner, Penalty, after_pending
from irsppl.penalties._reveal import periods_of
from irsppl.penalties._spend import spend


class Zero(Penalty):
    """The n-th pull of arm a pays its realised reward (paper, appendix, example)."""

    name: ClassVar[str] = "zero"
    on_host: ClassVar[bool] = True
    bound_only: ClassVar[bool] = True
    serves: ClassVar[frozenset[str]] = frozenset({"delay", "budget", "horizon law"})

    def inner(self, bandit: Bandit, outcome: Outcome) -> Inner:
        rewards = after_pending(bandit, outcome.rewards)
        if bandit.purse is not None:
            return spend(bandit, "groups", rewards)
        payoffs = jnp.pad(jnp.cumsum(rewards, axis=1), ((0, 0), (1, 0)))
        value, pulls = allocate(payoffs, periods_of(bandit, outcome))
        return Inner(value, jnp.argmax(pulls), pulls)

    def spends(self, bandit: Bandit) -> str:
        return "groups"

    def spending(self, bandit: Bandit, outcome: Outcome) -> Array:
        return after_pending(bandit, outcome.rewards)

    def values(self, bandit: Bandit, outcomes: Outcome) -> np.ndarray:
        if bandit.pending or bandit.constraints:
            return super().values(bandit, outcomes)
        rewards = np.asarray(outcomes.rewards)[:, :, : int(bandit.remaining)]
        return allocate_batch(_cumulative(rewards))[0]


def _cumulative(payoffs: np.ndarray) -> np.ndarray:
    """Sums of the first 0..N payoffs, `[S, K, N+1]` in float64."""
    sums = np.zeros((*payoffs.shape[:2], payoffs.shape[2] + 1))
    np.cumsum(payoffs, axis=2, dtype=np.float64, out=sums[:, :, 1:])
    return sums
