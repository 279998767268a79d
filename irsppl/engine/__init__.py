"""The CPU engine: one compiled loop, whose parts are chosen by their types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from irsppl.bandit import Bandit
from irsppl.policies import Policy

if TYPE_CHECKING:
    from irsppl.engine.dispatch import Kernel


def kernel(policy: Policy, bandit: Bandit) -> Kernel | None:
    """The policy compiled for the bandit, or None where it has to run in JAX."""
    from irsppl.engine.dispatch import find_kernel  # numba is not loaded before it is needed

    return find_kernel(policy, bandit)


__all__ = ["kernel"]
