"""Penalties with two forms where nobody knows when play ends."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Float, Int

from irsppl._checks import one_of
from irsppl.bandit import Bandit
from irsppl.outcomes import Outcome
from irsppl.penalties.arrivals import periods_of
from irsppl.penalties.base import PayoffPenalty

FORMS = ("sampled", "survivor")


class TwoForms(PayoffPenalty):
    """form: where the horizon has a law, "sampled" reveals T with each future; "survivor" does not,
    and weights each period by the chance that it is played."""

    settles: ClassVar[bool] = True
    form: str = eqx.field(static=True, default="sampled")

    def __check_init__(self) -> None:
        one_of("form", self.form, FORMS)

    @property
    def label(self) -> str:
        return self.name if self.form == "sampled" else f"{self.name} ({self.form})"

    def weights(self, bandit: Bandit) -> Float[Array, " N"] | None:
        """Chances that the periods to come are played, where the payoffs are weighted by them."""
        weighted = bandit.end.binds and self.form == "survivor"
        return bandit.end.weights(bandit) if weighted else None

    def periods(self, bandit: Bandit, outcome: Outcome) -> Int[Array, ""]:
        # Weighted periods are all planned for: how long this future lasts is not looked at.
        return bandit.remaining if self.form == "survivor" else periods_of(bandit, outcome)
