"""The IRS policy: sample a future, solve its penalised inner problem, play its first action."""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Array

from irsppl.bandit import Bandit
from irsppl.penalties import PENALTIES, Mix, Penalty, VSolo
from irsppl.policies._base import DecisionKernel, PathKernel, Policy, last_period

# Penalties whose whole paths the CPU kernel plays.
_KERNEL_RULES = {
    "ts": "ts",
    "irs.fh": "irs.fh",
    "irs.v-zero": "irs.v-zero",
    "irs.v-zero-separable": "irs.v-zero",  # the same for independent arms
}


class IRS(Policy):
    """One class for every penalty (paper, Algorithm IRS); with `ts` it is Thompson sampling."""

    name: ClassVar[str] = "irs"
    penalty: Penalty

    def __call__(self, key: Array, bandit: Bandit) -> Array:
        return self.penalty.decide(key, bandit)

    @property
    def serves(self) -> frozenset[str]:
        return self.penalty.serves

    def verify(self, bandit: Bandit) -> None:
        self.penalty.verify(bandit)

    def settled(self, bandit: Bandit) -> bool:
        # In the last period ours pay the predictive mean, all but Thompson sampling.
        ours = isinstance(self.penalty, tuple({type(p) for p in PENALTIES.values()}))
        return ours and self.penalty.name != "ts" and last_period(bandit)

    @property
    def grows(self) -> bool:
        return self.penalty.grows

    def paths(self, bandit: Bandit) -> PathKernel | None:
        if isinstance(self.penalty, (Mix, VSolo)):
            return self.penalty.paths(bandit)
        state = bandit.belief.kernel_state()
        if state is None:
            return None
        rule = _KERNEL_RULES.get(self.penalty.name)
        if rule is not None:
            from irsppl.inner.cpu.paths import simulate_paths

            return lambda rewards, seeds: simulate_paths(rule, *state, rewards, seeds)
        if self.penalty.name == "irs.v-emax" and bandit.num_arms == 2 and state[0] <= 1:
            from irsppl.inner.cpu.lattice import emax_paths_2

            return lambda rewards, seeds: emax_paths_2(*state, rewards, seeds)
        return None

    def decisions(self, bandit: Bandit) -> DecisionKernel | None:
        if isinstance(self.penalty, (Mix, VSolo)):
            return self.penalty.decisions(bandit)
        state = bandit.belief.kernel_state()
        if state is None:
            return None
        remaining = int(bandit.remaining)
        rule = _KERNEL_RULES.get(self.penalty.name)
        if rule is not None:
            from irsppl.inner.cpu.paths import decide

            return lambda seeds: decide(rule, *state, remaining, seeds)
        if self.penalty.name == "irs.v-emax" and bandit.num_arms == 2 and state[0] <= 1:
            from irsppl.inner.cpu.lattice import emax_decide_2

            return lambda seeds: emax_decide_2(*state, remaining, seeds)
        return None


class HostIRS(IRS):
    """The same for a penalty that is solved on the host."""

    traceable: ClassVar[bool] = False


def irs_policy(penalty: Penalty) -> IRS:
    """The IRS policy of a penalty."""
    return IRS(penalty) if penalty.traceable else HostIRS(penalty)
