"""The IRS policy: sample a future, solve its penalised inner problem, play its first action."""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Array

from irsppl.bandit import Bandit
from irsppl.penalties import Penalty
from irsppl.policies._base import Policy, last_period


class IRS(Policy):
    """One class for every penalty (paper, Algorithm IRS); with `ts` it is Thompson sampling."""

    name: ClassVar[str] = "irs"
    penalty: Penalty

    def __call__(self, key: Array, bandit: Bandit) -> Array:
        return self.penalty.decide(key, bandit)

    def verify(self, bandit: Bandit) -> None:
        self.penalty.verify(bandit)

    def settled(self, bandit: Bandit) -> bool:
        return self.penalty.settles and last_period(bandit)

    @property
    def grows(self) -> bool:
        return self.penalty.grows


class HostIRS(IRS):
    """The same for a penalty that is solved on the host."""

    traceable: ClassVar[bool] = False

    def verify(self, bandit: Bandit) -> None:
        super().verify(bandit)
        if not bandit.belief.is_independent:
            raise ValueError(
                f"{self.penalty.name} is only a bound where arms are correlated; as a policy use "
                "'irs.v-zero-separable'"
            )


def irs_policy(penalty: Penalty) -> IRS:
    """The IRS policy of a penalty."""
    return IRS(penalty) if penalty.traceable else HostIRS(penalty)
