"""The state of an experiment: what the events so far make of the bandit it started from."""

from __future__ import annotations

import array
import json
from collections.abc import Iterable

import jax.numpy as jnp
import numpy as np

from irsppl._fields import changed
from irsppl.bandit import Bandit
from irsppl.beliefs import sized
from irsppl.live import beliefs
from irsppl.live.codec import pack_with_models, unpack
from irsppl.live.journal import Event
from irsppl.live.models import Library

PENDING, TOLD, EXPIRED = 0, 1, 2


class State:
    """Folded events. `apply` trusts its events: whoever appends one checks it first."""

    def __init__(self, start: Bandit, library: Library | None = None):
        self.start, self.library = start, library or Library()
        self.horizon = int(start.remaining)
        self.labels = list(start.arm_labels)
        self.open = [True] * start.num_arms
        self.held = beliefs.hold(start.belief)
        # Of each arm: pulls, pending ones, and those that expired.
        self.counts, self.waiting, self.expired = np.zeros((3, start.num_arms), np.int64)
        self.money: int | None
        self.costs: list[int] | None
        self.money, self.costs = start.access.account()
        # By period: arm, PENDING or TOLD or EXPIRED, reward.
        self.arms = array.array("i")
        self.status = bytearray()
        self.rewards = array.array("d")
        self.pending: dict[int, float] = {}  # period -> when it was asked
        self.seq = 0  # events so far
        self.digest = ""

    # ---- where play is
    @property
    def period(self) -> int:
        return len(self.arms)

    @property
    def num_arms(self) -> int:
        return len(self.labels)

    @property
    def open_arms(self) -> list[int]:
        return [arm for arm, is_open in enumerate(self.open) if is_open]

    @property
    def affordable(self) -> list[int]:
        """Open arms that can be paid."""
        arms = self.open_arms
        if self.money is None or self.costs is None:
            return arms
        return [arm for arm in arms if self.costs[arm] <= self.money]

    @property
    def remaining(self) -> int:
        left = self.horizon - self.period
        if self.money is None or self.costs is None:
            return left
        return min(left, self.money // min(self.costs[arm] for arm in self.open_arms))

    @property
    def budget(self) -> float | None:
        return self.start.access.restored(self.money).budget()

    @property
    def tries(self) -> np.ndarray:
        """Pulls [K] as rules count them: what expired taught nothing. An arm stays tried, for one
        whose rewards never come would be tried for ever."""
        return np.maximum(self.counts - self.expired, np.minimum(self.counts, 1))

    # ---- events
    def apply(self, event: Event) -> None:
        kind, period, arm = event.kind, event.period, event.arm
        if kind == "ask":
            assert arm is not None and period == len(self.arms)
            self.arms.append(arm)
            self.status.append(PENDING)
            self.rewards.append(np.nan)
            self.pending[period] = event.at
            self.counts[arm] += 1
            self.waiting[arm] += 1
            if self.money is not None and self.costs is not None:
                self.money -= self.costs[arm]
        elif kind == "tell":
            assert period is not None and event.reward is not None
            arm = self.arms[period]
            if self.status[period] == PENDING:
                self.waiting[arm] -= 1
                del self.pending[period]
            elif self.status[period] == EXPIRED:
                self.expired[arm] -= 1
            self.status[period] = TOLD
            self.rewards[period] = event.reward
            self.held.update(arm, event.reward)
        elif kind == "expire":
            assert period is not None
            self.waiting[self.arms[period]] -= 1
            self.expired[self.arms[period]] += 1
            del self.pending[period]
            self.status[period] = EXPIRED
        elif kind == "add":
            self._add(event)
        elif kind == "retire":
            assert arm is not None
            self.open[arm] = False
        # "correct" has been seen to by `fold`; "model" is a note.
        self.seq, self.digest = event.seq + 1, event.digest

    def _add(self, event: Event) -> None:
        body = json.loads(event.body or "{}")
        more = self.library.unpack_arm(body)
        self.held = self.held.joined(more)
        self.labels.append(body["label"])
        self.open.append(True)
        self.counts, self.waiting, self.expired = (
            np.append(each, 0) for each in (self.counts, self.waiting, self.expired)
        )

    # ---- to and from bytes
    def packed(self) -> bytes:
        kept = {
            "labels": self.labels,
            "open": self.open,
            "held": self.held.packed(),
            "money": self.money,
            "arms": np.array(self.arms, np.int32),
            "status": np.frombuffer(bytes(self.status), np.uint8),
            "rewards": np.array(self.rewards, np.float64),
            "pending": np.array(list(self.pending), np.int64),
            "asked_at": np.array(list(self.pending.values()), np.float64),
        }
        return pack_with_models(kept, self.library.known)[0]

    @classmethod
    def unpacked(cls, start: Bandit, data: bytes, library: Library, seq: int, digest: str) -> State:
        kept = unpack(data, library.known, "a snapshot")
        state = cls(start, library)
        state.labels, state.open, state.money = kept["labels"], kept["open"], kept["money"]
        state.held = beliefs.unpacked(kept["held"])
        state.arms.frombytes(kept["arms"].astype(np.int32).tobytes())
        state.status = bytearray(kept["status"].tobytes())
        state.rewards.frombytes(kept["rewards"].tobytes())
        state.pending = dict(zip(kept["pending"].tolist(), kept["asked_at"].tolist(), strict=True))
        size = len(state.labels)
        arms = kept["arms"]
        state.counts = np.bincount(arms, minlength=size)
        state.waiting, state.expired = (
            np.bincount(arms[kept["status"] == kind], minlength=size) for kind in (PENDING, EXPIRED)
        )
        state.seq, state.digest = seq, digest
        return state

    # ---- the bandit now
    def bandit(self, awaited: bool = False) -> Bandit:
        """The bandit of the open arms as play has come to it.

        awaited: with the retired arms whose rewards may yet come and, where arms are correlated,
        tell of the open ones. Nobody may pull them, so what bounds this bandit bounds the other.
        """
        start, arms = self.start, self.open_arms
        if awaited and not start.belief.is_independent:
            arms = [arm for arm in range(self.num_arms) if self.open[arm] or self.waiting[arm]]
        belief = sized(beliefs.restricted(self.held.current(), arms), self.horizon)
        place = np.full(self.num_arms, -1)
        place[arms] = np.arange(len(arms))
        played = place[np.array(self.arms, np.int32)]
        waiting = np.frombuffer(bytes(self.status), np.uint8) == PENDING
        # The record is as long as the first horizon; pulls of arms that are gone await nothing.
        size = len(start.pulled) if start.pulled is not None else self.horizon
        pulled, seen = np.full(size, -1, np.int32), np.zeros(size, bool)
        pulled[: len(played)] = np.maximum(played, 0)
        seen[: len(played)] = ~waiting | (played < 0)
        access, arrivals, end = start.access.restored(self.money), start.arrivals, start.end
        labels = start.labels
        if arms != list(range(start.num_arms)):
            access, arrivals = access.of_arms(arms), arrivals.of_arms(arms)
            end = end.of_arms(arms)
            labels = tuple(self.labels[a] for a in arms)
        return changed(
            start,
            belief=belief,
            remaining=jnp.asarray(self.remaining, jnp.int32),
            period=jnp.asarray(self.period, jnp.int32),
            counts=jnp.asarray(self.tries[arms], jnp.int32),
            pulled=jnp.asarray(pulled),
            seen=jnp.asarray(seen),
            access=access,
            arrivals=arrivals,
            end=end,
            labels=labels,
        )


def fold(start: Bandit, events: Iterable[Event], library: Library | None = None) -> State:
    """The state after all events. A correction puts its reward where the first one stood."""
    events = list(events)
    final = {event.period: event.reward for event in events if event.kind == "correct"}
    state = State(start, library)
    for event in events:
        if event.kind == "tell" and event.period in final:
            event = event._replace(reward=final[event.period])
        state.apply(event)
    return state
