"""Events of an experiment, and the chain of digests that makes a change in them visible."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from irsppl.live.codec import DamagedError


class Event(NamedTuple):
    """One line of the journal; what does not belong to its kind is None."""

    seq: int  # 0, 1, 2, ...
    kind: str  # ask, tell, correct, expire, add, retire or model
    at: float  # wall time, seconds since 1970
    period: int | None = None  # number of the decision that it is about
    arm: int | None = None
    reward: float | None = None
    propensity: float | None = None
    request: str | None = None
    body: str | None = None  # JSON
    digest: str = ""

    def sealed(self, before: str) -> Event:
        """With the digest that ties it to the event before."""
        return self._replace(digest=_digest(self, before))


def _digest(event: Event, before: str) -> str:
    # Numbers, texts and None have one spelling in ASCII. A damaged row can hold anything, which has
    # one too, and it is not what was written.
    content = ascii((before, *event[:-1]))
    return hashlib.sha256(content.encode("ascii")).hexdigest()[:32]


def check_chain(events: Iterable[Event], seq: int, digest: str, where: str) -> tuple[int, str]:
    """(next number, digest) after events that must follow on; raises `DamagedError` if not."""
    for event in events:
        if event.seq != seq:
            raise DamagedError(
                f"{where} is damaged: event {seq} is missing (the next one is {event.seq}). The "
                f"{seq} events before it are intact; restore a backup to have the rest"
            )
        if _digest(event, digest) != event.digest:
            raise DamagedError(
                f"{where} is damaged: event {seq} is not what was written. The {seq} events before "
                "it are intact; restore a backup to have the rest"
            )
        seq, digest = seq + 1, event.digest
    return seq, digest
