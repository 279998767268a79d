"""Penalties, one file each. To add one: a file, and a line in `PENALTIES`."""

from typing import Any

from irsppl._checks import one_of
from irsppl.penalties._moments import reward_sds as reward_sds
from irsppl.penalties._payoffs import HostPayoff as HostPayoff
from irsppl.penalties._payoffs import Inner as Inner
from irsppl.penalties._payoffs import Payoff as Payoff
from irsppl.penalties._payoffs import PerArm as PerArm
from irsppl.penalties._payoffs import PerCounts as PerCounts
from irsppl.penalties._payoffs import PerMoney as PerMoney
from irsppl.penalties._payoffs import PerPeriod as PerPeriod
from irsppl.penalties._payoffs import PerPull as PerPull
from irsppl.penalties.base import CONJUGATE as CONJUGATE
from irsppl.penalties.base import PayoffPenalty as PayoffPenalty
from irsppl.penalties.base import Penalty as Penalty
from irsppl.penalties.base import Relaxation as Relaxation
from irsppl.penalties.base import find_evaluator as find_evaluator
from irsppl.penalties.base import future_means as future_means
from irsppl.penalties.base import host_future_means as host_future_means
from irsppl.penalties.ff import FF as FF
from irsppl.penalties.fh import FH as FH
from irsppl.penalties.ideal import Ideal as Ideal
from irsppl.penalties.lagrangian import Lagrangian as Lagrangian
from irsppl.penalties.mix import Mix as Mix
from irsppl.penalties.ts import TS as TS
from irsppl.penalties.v_emax import VEMax as VEMax
from irsppl.penalties.v_fit import VFit as VFit
from irsppl.penalties.v_solo import VSolo as VSolo
from irsppl.penalties.v_zero import VZero as VZero
from irsppl.penalties.v_zero_separable import VZeroSeparable as VZeroSeparable
from irsppl.penalties.zero import Zero as Zero

PENALTIES: dict[str, Relaxation] = {
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


def find_penalty(penalty: Any) -> Relaxation:
    """A penalty, or what else bounds, from its name or itself."""
    if isinstance(penalty, Relaxation):
        return penalty
    if isinstance(penalty, type):
        raise ValueError(f"penalty must be an object, not the class: write {penalty.__name__}()")
    if not isinstance(penalty, str):
        raise ValueError(f"penalty must be a name or a Penalty, got {penalty!r}")
    return PENALTIES[one_of("penalty", penalty, PENALTIES)]
