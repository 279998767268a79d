"""No penalty: the clairvoyant collects the realised rewards. The loosest bound, for teaching."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from irsppl.bandit import Bandit
from irsppl.outcomes import Outcome
from irsppl.penalties._payoffs import PerPull
from irsppl.penalties.base import PLAIN, PayoffPenalty, after_pending


class Zero(PayoffPenalty):
    """The n-th pull of arm a pays its realised reward (paper, appendix, example)."""

    name: ClassVar[str] = "zero"
    host_needs: ClassVar[frozenset[str] | None] = PLAIN
    bound_only: ClassVar[bool] = True
    serves: ClassVar[frozenset[str]] = frozenset({"delay", "budget", "horizon law"})

    def payoff(self, bandit: Bandit, outcome: Outcome) -> PerPull:
        return PerPull(after_pending(bandit, outcome.rewards))

    def host_payoff(self, bandit: Bandit, outcomes: Outcome) -> PerPull:
        return PerPull(np.asarray(outcomes.rewards)[:, :, : int(bandit.remaining)])
