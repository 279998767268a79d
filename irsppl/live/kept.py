"""An experiment as it is kept: a state in memory that follows the journal in the database."""

from __future__ import annotations

import contextlib
import json
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from irsppl.bandit import Bandit
from irsppl.live import store
from irsppl.live.codec import DamagedError
from irsppl.live.decide import plan_for
from irsppl.live.errors import ConflictError, UndoneError
from irsppl.live.journal import Event, check_chain
from irsppl.live.models import Library
from irsppl.live.state import State, fold

# A snapshot is written when the journal has grown by a quarter, and by this much at least.
_SNAPSHOT_EVENTS = 2000


class Kept:
    """State and journal; what may happen is for `Experiment` to say."""

    def __init__(self, where: store.Store, facts: dict[str, Any], bandit: Bandit, made: float):
        self._store, self._facts, self._start = where, facts, bandit
        self._library = Library()
        self._plan = plan_for(facts["policy"], facts["seed"], facts["floor"], bandit)
        self.created_at = made
        self._first_arms = bandit.num_arms
        # Held: Equinox makes it anew at each look.
        self._check_support = bandit.belief.check_reward
        # What the belief's numbers can hold the square of.
        self._most = float(np.finfo(bandit.belief.predictive_mean().dtype).max) ** 0.5
        self._state: State | None = None
        self._dirty = False
        self._group: Any = None  # the transaction of several asks and tells
        self._broken = False
        self._next_snapshot = _SNAPSHOT_EVENTS

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Several asks and tells as one write: on the disk together, or not at all.

        What is refused without a trace leaves the others alone; where a trace is left, all are
        undone and `UndoneError` is raised.
        """
        with self._writing() as tx:
            self._group, self._broken = tx, False
            try:
                yield
                if self._broken:
                    self._dirty = True
                    raise UndoneError("one of several could not be done: none of them was")
            finally:
                self._group = None

    @contextlib.contextmanager
    def _within_group(self) -> Iterator[Any]:
        before, self._dirty = self._dirty, False
        try:
            yield self._group
        except BaseException:
            self._broken = self._broken or self._dirty
            raise
        finally:
            self._dirty = self._dirty or before

    @contextlib.contextmanager
    def _writing(self, caught_up: bool = True) -> Iterator[Any]:
        with self._store.lock:
            if self._group is not None:
                with self._within_group() as tx:
                    yield tx
                return
            self._dirty = False
            try:
                with self._store.transaction() as tx:
                    if caught_up:
                        self._catch_up(tx)
                    yield tx
            except BaseException:
                if self._dirty:  # what was applied may not have been written
                    self._state = None
                raise

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Any]:
        """To look only. Within `together` that is its transaction: what it wrote counts."""
        with self._store.lock:
            if self._group is not None:
                yield self._group
                return
            with self._store.transaction(write=False) as tx:
                yield tx

    def _look(self) -> State:
        """The state with all that others have written."""
        with self._reading() as tx:
            return self._catch_up(tx)

    def _catch_up(self, tx: Any) -> State:
        state = self._state
        if state is None:
            return self._load(tx)
        events = store.since(tx, state.seq)
        if not events:
            return state
        self._check_model(events)
        if any(event.kind in ("correct", "model") for event in events):
            return self._load(tx)
        check_chain(events, state.seq, state.digest, self._store.name)
        self._state = None  # until all of them are in
        for event in events:
            state.apply(event)
        self._state = state
        return state

    def _check_model(self, events: list[Event]) -> None:
        """Refuse to go on with arms whose file somebody else has agreed to change."""
        notes = [json.loads(event.body or "{}") for event in events if event.kind == "model"]
        description = self._library.description
        if notes and description is not None and notes[-1]["sha256"] != description["sha256"]:
            raise ConflictError(
                f"another process has gone on with a changed model ({notes[-1]['path']}): open the "
                "experiment again with that file"
            )

    def _load(self, tx: Any) -> State:
        """The state from the newest snapshot that is whole, and the journal since."""
        state = None
        if self._library.description is not None:  # snapshots refer to models of added arms too
            for event in store.of_kind(tx, "add"):
                self._library.learn(json.loads(event.body or "{}"))
        for seq, digest, data in store.snapshots(tx):
            last = store.between(tx, seq - 1, seq - 1)
            if not last or last[0].digest != digest:
                raise DamagedError(
                    f"{self._store.name} is damaged: its snapshot knows {seq} events, of which the "
                    "journal has lost some. Restore a backup"
                )
            try:
                state = State.unpacked(self._start, data, self._library, seq, digest)
                break
            except DamagedError as error:
                warnings.warn(f"{error}; the journal is read instead", stacklevel=2)
        if state is None:
            state = fold(self._start, self._checked(tx), self._library)
        else:
            for event in self._checked(tx, state.seq, state.digest):
                state.apply(event)
        self._next_snapshot = max(state.seq + _SNAPSHOT_EVENTS, state.seq * 5 // 4)
        self._state = state
        return state

    @property
    def _now(self) -> State:
        """The state, which a write has caught up with."""
        assert self._state is not None
        return self._state

    def _apply(self, kind: str, **fields: Any) -> Event:
        """An event that has been checked, into the state."""
        state, self._dirty = self._now, True
        event = Event(state.seq, kind, time.time(), **fields).sealed(state.digest)
        state.apply(event)
        return event

    def _append(self, tx: Any, *events: Event) -> None:
        """Events that are in the state, into the journal."""
        if not events:  # there may be a snapshot of this state already, by another process
            return
        store.append(tx, list(events))
        if self._now.seq >= self._next_snapshot:
            self._snapshot(tx)

    def _snapshot(self, tx: Any) -> None:
        state = self._now
        store.save_snapshot(tx, state.seq, state.digest, state.packed())
        self._next_snapshot = max(state.seq + _SNAPSHOT_EVENTS, state.seq * 5 // 4)

    def events(self) -> list[Event]:
        """The whole journal, checked."""
        with self._reading() as tx:
            return self._checked(tx)

    def _checked(self, tx: Any, seq: int = 0, digest: str = "") -> list[Event]:
        """The events since number `seq`, which must follow on."""
        events = store.since(tx, seq)
        check_chain(events, seq, digest, self._store.name)
        return events
