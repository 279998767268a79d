"""A user's own function as a policy: compiled where JAX can trace it, else played in Python."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from irsppl.bandit import Bandit
from irsppl.policies._base import Player, Policy
from irsppl.policies._tracing import why_plain


class FunctionPolicy(Policy):
    """`function(key, bandit) -> arm`; -1 stops where there is a budget."""

    name: ClassVar[str] = "function"
    function: Callable[[Array, Bandit], Any] = eqx.field(static=True)

    def verify(self, bandit: Bandit) -> None:
        """It sees the bandit, and so every constraint."""

    def __call__(self, key: Array, bandit: Bandit) -> Array:
        arm = jnp.asarray(self.function(key, bandit))
        if arm.shape != () or not jnp.issubdtype(arm.dtype, jnp.integer):
            raise ValueError(
                "a policy must return one arm (a whole number), got an array of shape "
                f"{arm.shape} and dtype {arm.dtype}"
            )
        return arm


class PlainPolicy(Policy):
    """A function (or a user's policy) that JAX cannot trace: called in Python for each decision.

    reason: why. It gets concrete bandits, in every replication the same function.
    """

    name: ClassVar[str] = "function"
    traceable: ClassVar[bool] = False
    function: Callable[[Array, Bandit], Any] = eqx.field(static=True)
    reason: str = eqx.field(static=True)

    def verify(self, bandit: Bandit) -> None:
        """As for `FunctionPolicy`."""

    def __call__(self, key: Array, bandit: Bandit) -> Array:
        return self.function(key, bandit)

    def player(self, seed: int, bandit: Bandit) -> Player:
        return Player(self.function)


def playable(policy: Policy, bandit: Bandit, ours: frozenset[type]) -> Policy:
    """The policy itself, or as plain Python where it is someone's own and JAX cannot trace it."""
    if not policy.traceable or type(policy) in ours:
        return policy
    # The function proper is looked at, so that state is found where it is kept.
    function = policy.function if isinstance(policy, FunctionPolicy) else policy
    reason = why_plain(function, bandit)
    return policy if reason is None else PlainPolicy(function, reason)


class ArmCheck:
    """Reads what a policy of that label returns on such a bandit."""

    def __init__(self, label: str, bandit: Bandit):
        self.label, self.num_arms, self.access = label, bandit.num_arms, bandit.access
        self.least = -1 if bandit.access.may_stop else 0  # -1: to stop

    def __call__(self, arm: Any) -> int:
        """The arm as an int; `ValueError` where it is none."""
        try:
            if type(arm) is not int and np.asarray(arm).dtype == np.bool_:
                raise TypeError
            number = operator.index(arm)
        except TypeError:
            raise ValueError(
                f"policy {self.label!r} must return one arm (a whole number), got {arm!r}"
            ) from None
        if not self.least <= number < self.num_arms:
            raise self.error(number)
        return number

    def error(self, arm: int) -> ValueError:
        if 0 <= arm < self.num_arms:
            return ValueError(
                f"policy {self.label!r} returned arm {arm} when it may not be pulled "
                f"({self.access.name}): bandit.access.allowed(bandit) tells which may"
            )
        valid = f"arms are 0 to {self.num_arms - 1}" + (" or -1 to stop" if self.least else "")
        why = ": play may stop only where there is a budget" if arm == -1 else ""
        return ValueError(f"policy {self.label!r} returned arm {arm}, but {valid}{why}")
