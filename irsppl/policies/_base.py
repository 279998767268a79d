"""The contract of a policy, documented once."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Array, Int

from irsppl.bandit import Bandit
from irsppl.penalties.base import check_constraints


class Player:
    """One run of a policy that decides on the host, from concrete bandits."""

    # False: it goes by what it is told alone, so that nobody need keep a belief for it.
    reads_bandit: ClassVar[bool] = True

    def __init__(self, decide: Callable[[Array, Bandit], Any]):
        self.decide = decide

    def learn(self, arm: int, reward: float) -> None:
        """A reward has arrived."""


class Policy(eqx.Module):
    """`policy(key, bandit) -> arm`, from any state of play, without looking ahead."""

    name: ClassVar[str]
    # Same state, same arm: its action probabilities are exact.
    deterministic: ClassVar[bool] = False
    # False: decides on the host from concrete bandits only: by a compiled rule, or one at a time.
    traceable: ClassVar[bool] = True
    # Why it is played in Python, where it is not traceable and has no compiled rule.
    reason = "it decides on the host"
    # Constraints that it can be played under. What looks at the belief alone works with what has
    # arrived, and does not mind when play ends; which arms may be pulled it must know of.
    serves: ClassVar[frozenset[str]] = frozenset({"delay", "horizon law"})

    @abc.abstractmethod
    def __call__(self, key: Array, bandit: Bandit) -> Int[Array, ""]:
        """The arm to pull now."""

    def settled(self, bandit: Bandit) -> bool:
        """Whether it would play the same arm from this state whatever it drew.

        Then its action probabilities are exact; elsewhere any arm counts as possible.
        """
        return self.deterministic

    def check(self, bandit: Bandit) -> None:
        """Raise `ValueError`, with the reason, where this policy cannot serve the bandit."""

    def verify(self, bandit: Bandit) -> None:
        """All checks, before any work."""
        check_constraints(self.name, self.serves, bandit)
        self.check(bandit)

    @property
    def grows(self) -> bool:
        """Whether a decision costs more when arrays are sized for a longer horizon."""
        return False

    def begun(self, bandit: Bandit) -> Policy:
        """The policy for a course of play that begins with this bandit, where it plans from there.

        What a decision is must not depend on what was solved before in the same process.
        """
        return self

    def player(self, seed: int, bandit: Bandit) -> Player:
        """For one run in Python, where it is not traceable and has no compiled rule."""
        return Player(self)


def last_period(bandit: Bandit) -> bool:
    """Whether nothing can be learned any more before the last pull."""
    return int(bandit.remaining) == 1 and not bandit.pending
