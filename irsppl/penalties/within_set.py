"""Means of TS and FH values given the particles that a future brought: control variates, no bounds.

Which point of its set is the truth of a future is drawn at random, so a value less its mean given
the set has mean zero exactly, and no law of the prior is needed.
"""

from __future__ import annotations

from typing import ClassVar

import jax.numpy as jnp

from irsppl.bandit import Bandit
from irsppl.outcomes import Outcome
from irsppl.penalties._base import Inner, Penalty


class TSWithinSet(Penalty):
    """T E[max_a mu_a | set]."""

    name: ClassVar[str] = "ts within set"
    of: ClassVar[str] = "ts"
    bound_only: ClassVar[bool] = True

    def inner(self, bandit: Bandit, outcome: Outcome) -> Inner:
        return _only(bandit, outcome.belief.mean_max())


class FHWithinSet(Penalty):
    """T E[max_a mu_hat_{a, T-1} | set], for binary rewards."""

    name: ClassVar[str] = "irs.fh within set"
    of: ClassVar[str] = "irs.fh"
    bound_only: ClassVar[bool] = True

    def inner(self, bandit: Bandit, outcome: Outcome) -> Inner:
        best = outcome.belief.future_mean_max(bandit.remaining - 1, bandit.size)
        return _only(bandit, best)


def _only(bandit: Bandit, each: jnp.ndarray) -> Inner:
    nothing = jnp.zeros(bandit.num_arms, jnp.int32)
    return Inner(bandit.remaining * each, jnp.asarray(0), nothing)


def set_controls(bandit: Bandit) -> list[TSWithinSet | FHWithinSet]:
    """The controls that apply: none unless each future brings a set of its own."""
    belief = bandit.belief
    if not getattr(belief, "brings_sets", False) or bandit.constraints:
        return []
    found: list[TSWithinSet | FHWithinSet] = [TSWithinSet()]
    if getattr(belief, "is_binary", False) and not bandit.pending:
        found.append(FHWithinSet())
    return found
