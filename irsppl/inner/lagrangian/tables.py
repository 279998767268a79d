"""Tables of the index policies for given multipliers."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from irsppl.inner.arrays import Ints, Singles
from irsppl.inner.lagrangian.minimise import LagrangianBound
from irsppl.inner.lagrangian.relaxation import (
    MAX_BYTES,
    Relaxation,
    index_table,
    single_arm_pass,
    table_size,
)


@dataclass(frozen=True, eq=False)
class LagrangianTables:
    """Priority indices and mixture probabilities, one row per distinct arm.

    Rows are flat over (t, n, s), see the module's docstring.
    """

    index: Singles = field(repr=False)  # [G, T(T+1)(T+2)/6]
    pull: Singles = field(repr=False)  # the same of how likely the optimal mixture pulls the arm
    group: Ints  # [K] row of each arm
    horizon: int
    tie_tolerance: float

    @property
    def num_arms(self) -> int:
        return self.group.size

    def index_at(self, *place: ArrayLike) -> Singles:
        """Priority index at (arm, period, successes, failures), which broadcast."""
        return self._at(self.index, place)

    def pull_at(self, *place: ArrayLike) -> Singles:
        """Mixture probability of pulling, same arguments as :meth:`index_at`."""
        return self._at(self.pull, place)

    def _at(self, table: Singles, place: tuple[ArrayLike, ...]) -> Singles:
        a, period, s, f = (np.asarray(x, dtype=np.int64) for x in place)
        n = s + f
        if np.any((s < 0) | (f < 0) | (n > period) | (period >= self.horizon)):
            raise ValueError(f"counts must be >= 0 and add up to t at most, t < {self.horizon}")
        entry = period * (period + 1) * (period + 2) // 6 + n * (n + 1) // 2 + s
        return table[self.group[a], entry]


def lagrangian_tables(bound: LagrangianBound) -> LagrangianTables:
    """Tables of the Lagrangian index policies for the multipliers of a bound.

    8 bytes per entry and distinct arm: 11 MB at T = 200, 167 MB at T = 500. Indices as close to the
    largest as the bound's smoothing is wide count as tied.
    """
    relaxation = Relaxation(bound.alpha, bound.beta, bound.horizon)
    size = table_size(bound.horizon)
    groups = relaxation.priors.shape[0]
    if 8 * groups * size > MAX_BYTES:
        raise ValueError(
            f"{groups} distinct arms at horizon {bound.horizon} need {8e-6 * groups * size:,.0f} "
            f"MB of index tables, above the limit of {MAX_BYTES / 1e6:,.0f} MB; shorten the horizon"
        )
    relaxation.allocate()
    index = np.empty((groups, size), np.float32)
    pull = np.empty((groups, size), np.float32)
    scratch = np.empty(bound.horizon)
    for g, (alpha, beta) in enumerate(relaxation.priors):
        index_table(alpha, beta, bound.multipliers, relaxation.work, index[g])
        work = (pull[g], relaxation.first, relaxation.work, scratch)
        single_arm_pass(alpha, beta, bound.multipliers, bound.tau, *work)
    return LagrangianTables(
        index=index,
        pull=pull,
        group=relaxation.group.astype(np.int64),
        horizon=bound.horizon,
        tie_tolerance=float(bound.tau),
    )
