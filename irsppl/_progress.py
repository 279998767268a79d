"""How far a long computation has come, told on standard error."""

from __future__ import annotations

import sys
import time
from typing import Any

# Elsewhere than on a terminal: a line so often at the least, and for every tenth of the work, but
# none for what is over before anybody wonders.
_SECONDS = 30.0
_SHORTEST = 10.0


class Progress:
    """A bar on a terminal, lines now and then elsewhere (a log file, a pipe, a batch system).

    total: the work, in `unit`; initial: how much of it was done before. show: None as said, True a
    bar in any case, False nothing. Use as a context; `update` when a part of the work is done.
    """

    def __init__(
        self, total: int, title: str, unit: str, show: bool | None = None, initial: int = 0
    ):
        self.total, self.initial, self.title, self.unit = total, initial, title, unit
        self.done, self.what = initial, ""
        self.lines = show is None and not sys.stderr.isatty()
        self.bar: Any = None
        if show or (show is None and not self.lines):
            from tqdm.auto import tqdm

            # No smoothing: the time left from the mean speed, for parts of the work differ much.
            how: dict[str, Any] = {"unit": unit, "unit_scale": True, "smoothing": 0}
            self.bar = tqdm(total=total, initial=initial, desc=title, **how)
        self.begin = self.last = time.monotonic()
        self.shown = initial

    def __enter__(self) -> Progress:
        if self.bar is not None:
            self.bar.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self.bar is not None:
            self.bar.__exit__(*error)

    def doing(self, what: str) -> None:
        """What is being worked on right now."""
        self.what = what
        if self.bar is not None:
            self.bar.set_postfix_str(what)

    def update(self, amount: int) -> None:
        self.done += amount
        if self.bar is not None:
            self.bar.update(amount)
        elif self.lines and self.done < self.total:
            now = time.monotonic()
            since = now - self.last
            tenth = self.done - self.shown >= self.total / 10
            if since >= _SECONDS or (tenth and since >= _SHORTEST):
                self._line(now)

    def _line(self, now: float) -> None:
        share = self.done / self.total
        new = self.done - self.initial
        left = "how long it takes is not known yet"  # the first parts also compile
        if new >= (self.total - self.initial) / 50:
            left = f"about {duration((now - self.begin) * (self.total - self.done) / new)} left"
        at = f", at {self.what}" if self.what else ""
        print(
            f"irsppl: {self.title}: {share:.0%} of {self.total:,} {self.unit}s{at}; {left}",
            file=sys.stderr,
            flush=True,
        )
        self.last, self.shown = now, self.done


def duration(seconds: float) -> str:
    """A time as people say it: 40 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
