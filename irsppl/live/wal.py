"""What SQLite does not say of itself: writes that a damaged write-ahead log has lost.

When the log is damaged somewhere, SQLite takes what comes before for the whole of it, silently, and
deletes the rest. So the log is looked at before SQLite sees it (https://sqlite.org/walformat.html):
frames of 24 bytes and a page each, which carry the log's two salts, and a checksum of all before.
The last frame of a commit says the size of the database, others 0. The salts change together
whenever the log begins anew, so that frames of an older log behind the end are known as such.
"""

from __future__ import annotations

import functools
import pathlib
import time
from typing import Any

import numpy as np

_HEAD, _FRAME_HEAD = 32, 24
_WORD = 0xFFFFFFFF
# Seconds of looking again.
PATIENCE = 0.5


def lost_commits(path: str) -> tuple[int, bool]:
    """(commits in the log of the database at `path` that stand behind its first damage, whether
    some of them had been acknowledged).

    One can be a write that was cut short: the next one would have begun only when it was on the
    disk. So where two are found, and one of them whole, something acknowledged is lost. Others may
    be writing just now, so what looks like that is looked at again.
    """
    until = time.monotonic() + PATIENCE
    while True:
        try:
            lost, whole = _behind(pathlib.Path(f"{path}-wal").read_bytes())
        except FileNotFoundError:
            return 0, False
        acknowledged = lost > 1 and whole
        if not acknowledged or time.monotonic() > until:
            return lost, acknowledged
        time.sleep(0.05)


def _behind(log: bytes) -> tuple[int, bool]:
    """(commits behind the first damage, whether the last frame of one of them is whole)."""
    head = log[:_HEAD]
    page = int.from_bytes(head[8:12], "big")
    if page not in (1 << i for i in range(9, 17)):
        page = 4096  # the head is damaged: pages have this size unless somebody said otherwise
    size = _FRAME_HEAD + page
    count = (len(log) - _HEAD) // size
    if count <= 0:
        return 0, False
    frames = np.frombuffer(log, np.uint8, count * size, _HEAD).reshape(count, size)
    intact, fits = _intact(head, frames)
    # One salt is enough: the log's own head may be what is damaged.
    salts = np.frombuffer(head, np.uint8)[16:24]
    ours = np.all(frames[:, 8:12] == salts[:4], 1) | np.all(frames[:, 12:16] == salts[4:], 1)
    commits = ours & np.any(frames[:, 4:8] != 0, axis=1)
    first = int(np.argmin(intact)) if not intact.all() else count
    return int(np.count_nonzero(commits[first:])), bool(np.any((commits & fits)[first:]))


def _intact(head: bytes, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each frame: would SQLite take it, and does it fit what is written before it?"""
    # The head says how words are read; where it is damaged, as machines of today do.
    order = {b"\x37\x7f\x06\x83": ">u4"}.get(head[:4], "<u4")
    begun = _checksum(np.frombuffer(head[:24], order)[None], [[0, 0]])
    written = frames[:, 16:24].copy().view(">u4").astype(np.uint64)
    # As long as checksums fit, what is written is what the next one begins with.
    before = np.concatenate([begun, written[:-1]])
    covered = np.concatenate([frames[:, :8], frames[:, _FRAME_HEAD:]], axis=1).view(order)
    fits = np.all(_checksum(covered, before) == written, axis=1)
    known = head[:4] in (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
    known = known and begun[0].tolist() == np.frombuffer(head[24:32], ">u4").tolist()
    salted = np.all(frames[:, 8:16] == np.frombuffer(head, np.uint8)[16:24], axis=1)
    return np.logical_and.accumulate(fits & salted) & known, fits


def _checksum(words: np.ndarray, before: Any) -> np.ndarray:
    """SQLite's checksum of each row of `words`, begun with the two numbers `before` it.

    a += x + b, b += y + a for each pair (x, y): linear in all of them modulo 2**32, with Fibonacci
    numbers as weights.
    """
    weights, start = _weights(words.shape[1] // 2)
    with np.errstate(over="ignore"):
        sums = words.astype(np.uint64) @ weights + np.array(before, np.uint64) @ start
    return sums & np.uint64(_WORD)


@functools.cache
def _weights(pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """[2 pairs, 2] of the words, [2, 2] of the numbers before them; columns: a, b."""
    rows: list[list[tuple[int, int]]] = []
    one, two = (1, 0), (0, 1)  # what adding to a, and to b, has come to by the end
    for _ in range(pairs):
        # x enters a before b takes a; y enters b alone.
        x, y = ((one[0] + two[0]) & _WORD, (one[1] + two[1]) & _WORD), two
        rows.append([x, y])
        # One pair earlier: a feeds a and, through it, b; b feeds a first.
        one, two = x, ((x[0] + two[0]) & _WORD, (x[1] + two[1]) & _WORD)
    flat = [row for pair in reversed(rows) for row in pair]
    return np.array(flat, np.uint64), np.array([one, two], np.uint64)
