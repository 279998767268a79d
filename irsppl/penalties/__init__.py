"""Penalties, one file each. To add one: a file, and a line in `PENALTIES`."""

from typing import Any

from irsppl._checks import one_of
from irsppl.penalties._base import PayoffPenalty, Penalty, future_means
from irsppl.penalties._control_variates import set_controls
from irsppl.penalties._payoffs import (
    HostPayoff,
    Inner,
    Payoff,
    PerArm,
    PerCounts,
    PerMoney,
    PerPeriod,
    PerPull,
)
from irsppl.penalties.ff import FF
from irsppl.penalties.fh import FH
from irsppl.penalties.ideal import Ideal
from irsppl.penalties.lagrangian import Lagrangian
from irsppl.penalties.mix import Mix
from irsppl.penalties.ts import TS
from irsppl.penalties.v_emax import VEMax
from irsppl.penalties.v_fit import VFit
from irsppl.penalties.v_solo import VSolo
from irsppl.penalties.v_zero import VZero
from irsppl.penalties.v_zero_separable import VZeroSeparable
from irsppl.penalties.zero import Zero

PENALTIES: dict[str, Penalty] = {
    penalty.name: penalty
    for penalty in (
        Zero(),
        TS(),
        FH(),
        FF(),
        VZero(),
        VZeroSeparable(),
        VEMax(),
        VSolo(),
        VFit(),
        Mix(),
        Lagrangian(),
        Ideal(),
    )
}


def find_penalty(penalty: Any) -> Penalty:
    """A penalty from its name or itself."""
    if isinstance(penalty, Penalty):
        return penalty
    if isinstance(penalty, type):
        raise ValueError(f"penalty must be an object, not the class: write {penalty.__name__}()")
    if not isinstance(penalty, str):
        raise ValueError(f"penalty must be a name or a Penalty, got {penalty!r}")
    return PENALTIES[one_of("penalty", penalty, PENALTIES)]


__all__ = [
    "FF",
    "FH",
    "PENALTIES",
    "TS",
    "HostPayoff",
    "Ideal",
    "Inner",
    "Lagrangian",
    "Mix",
    "Payoff",
    "PayoffPenalty",
    "Penalty",
    "PerArm",
    "PerCounts",
    "PerMoney",
    "PerPeriod",
    "PerPull",
    "VEMax",
    "VFit",
    "VSolo",
    "VZero",
    "VZeroSeparable",
    "Zero",
    "find_penalty",
    "future_means",
    "set_controls",
]
