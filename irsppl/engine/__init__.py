"""The CPU engine: one compiled loop, whose parts are chosen by their types."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from irsppl.bandit import Bandit
from irsppl.policies import Policy
from irsppl.policies.paths import Played


class Kernel(NamedTuple):
    """A policy on a bandit, compiled.

    paths: (rewards [S, K, N], seeds [S], delays [S, K, N] or None, periods [S] or None, threads) ->
    arms [S, T], -1 where none is pulled. decisions: seeds [S] -> arms [S], all from one state; None
    where the policy makes single decisions otherwise. played: `paths` that also tell how good the
    beliefs were, of clouds that move in play. Where points stay (read off tables or curves), `ess`
    is None, and `irsppl.policies.paths` finds it from the arms.
    """

    paths: Callable[..., np.ndarray]
    decisions: Callable[[np.ndarray], np.ndarray] | None
    played: Callable[..., Played]


def kernel(policy: Policy, bandit: Bandit) -> Kernel | None:
    """The policy compiled for the bandit, or None where it has to run in JAX."""
    from irsppl.engine.dispatch import find_kernel  # numba is not loaded before it is needed

    return find_kernel(policy, bandit)


__all__ = ["Kernel", "kernel"]
