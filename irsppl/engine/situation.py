"""What kernels ask of a bandit, as numbers on the host."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from irsppl.bandit import Bandit
from irsppl.beliefs import InKernels
from irsppl.constraints import Access, Arrivals, End, Free, Prompt, Sure
from irsppl.inner.arrays import Floats, Ints


@dataclasses.dataclass(frozen=True, eq=False)
class NaturalState(InKernels):
    """A natural family's state (`irsppl.inner.cpu.families`) without JAX arrays round it."""

    code: int
    xi: Floats
    nu: Floats
    noise_sd: Floats

    @property
    def is_independent(self) -> bool:
        return True

    def kernel_state(self) -> tuple[int, NDArray, NDArray, NDArray]:
        return self.code, self.xi, self.nu, self.noise_sd


class Situation(NamedTuple):
    """A bandit at one moment. K arms."""

    belief: Any
    period: int
    remaining: int
    size: int  # periods that arrays have room for
    counts: Ints  # [K] pulls made
    waiting: Ints  # [K] of which are pending
    pulled: Ints = np.empty(0, np.int64)  # arms of the pending pulls, in their order
    made: Ints = np.empty(0, np.int64)  # and the periods in which they were made
    access: Access = Free()
    arrivals: Arrivals = Prompt()
    end: End = Sure()
    bandit: Bandit | None = None

    @property
    def num_arms(self) -> int:
        return self.counts.size

    @property
    def plain(self) -> bool:
        """Nothing limits play, and nothing is pending."""
        limited = self.access.binds or self.arrivals.binds or self.end.binds
        return not limited and not self.waiting.any()


def situation_of(bandit: Bandit) -> Situation:
    made = np.array(bandit.pending, np.int64)
    record = np.empty(0) if bandit.pulled is None else np.asarray(bandit.pulled)
    pulled = record[made].astype(np.int64)
    arms = bandit.num_arms
    return Situation(
        bandit.belief,
        int(bandit.period),
        int(bandit.remaining),
        bandit.size,
        np.array(bandit.counts, np.int64),
        np.bincount(pulled, minlength=arms).astype(np.int64),
        pulled,
        made,
        bandit.access,
        bandit.arrivals,
        bandit.end,
        bandit,
    )
