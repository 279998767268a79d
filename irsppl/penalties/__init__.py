"""Penalties, one file each. To add one: a file, and a line in `PENALTIES`."""

from typing import Any

from irsppl._checks import one_of
from irsppl.penalties._arrivals import at_each, by_arrival, pending_of, periods_of, ready
from irsppl.penalties._base import (
    MOST_QUADRATURES,
    PayoffPenalty,
    Penalty,
    after_pending,
    after_pending_batch,
    check_constraints,
    exact_max_after,
    future_means,
)
from irsppl.penalties._brief import TOWER, brief_values
from irsppl.penalties._brief import serves as brief_serves
from irsppl.penalties._control_variates import (
    ControlVariate,
    mean_controls,
    set_controls,
)
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
    "MOST_QUADRATURES",
    "PENALTIES",
    "TOWER",
    "TS",
    "ControlVariate",
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
    "after_pending",
    "after_pending_batch",
    "at_each",
    "brief_serves",
    "brief_values",
    "by_arrival",
    "check_constraints",
    "exact_max_after",
    "find_penalty",
    "future_means",
    "mean_controls",
    "pending_of",
    "periods_of",
    "ready",
    "set_controls",
]
