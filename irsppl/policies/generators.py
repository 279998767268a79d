"""Random generators that are not JAX's: NumPy's and Python's global ones, and those in objects."""

from __future__ import annotations

import contextlib
import datetime
import os
import random
import sys
import threading
import time
import types
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

_lock = threading.RLock()

# All other than Python's unseeded `Random` ask these, NumPy's generators and `secrets` too.
_ENTROPY = {getattr(os, name) for name in ("urandom", "getrandom") if hasattr(os, name)}
_SEED = random.Random.seed.__code__
_CLOCKS = {
    datetime.date.today,
    *(getattr(datetime.datetime, name) for name in ("now", "today", "utcnow")),
    *(part for part in vars(time).values() if isinstance(part, types.BuiltinFunctionType)),
}
# Neither the user's code nor what it would decide by: they time what they do themselves.
LIBRARIES = sys.stdlib_module_names | {"equinox", "irsppl", "jax", "jaxlib", "numpy", "numpyro"}


def global_state() -> tuple[Any, Any]:
    return np.random.get_state(), random.getstate()  # noqa: NPY002 (the user's code may use it)


def restore_global(state: tuple[Any, Any]) -> None:
    np.random.set_state(state[0])  # noqa: NPY002
    random.setstate(state[1])


def same_global(a: tuple[Any, Any], b: tuple[Any, Any]) -> bool:
    numpy = all(np.array_equal(x, y) for x, y in zip(a[0], b[0], strict=True))
    return numpy and a[1] == b[1]


def key_words(key: Array) -> tuple[int, int]:
    """Two words of 32 bits from a key."""
    first, *_, last = np.asarray(jax.random.key_data(key)).ravel().tolist()
    return first, last


def seed_of(key: Array) -> int:
    """A 64-bit seed from a key."""
    first, last = key_words(key)
    return first << 32 | last


@contextlib.contextmanager
def seeded(key: Array) -> Iterator[None]:
    """The global generators follow the key within, and go on as before after."""
    with _lock:
        before = global_state()
        try:
            words = np.random.SeedSequence(seed_of(key)).generate_state(4)
            np.random.seed(words)  # noqa: NPY002
            random.seed(int(words[0]))
            yield
        finally:
            restore_global(before)


def package(module: Any) -> str:
    """The package of a module, from their names."""
    return str(module).partition(".")[0]


@contextlib.contextmanager
def sources() -> Iterator[list[str]]:
    """Why what is called within, in this thread, answers differently each time, where it does."""
    noted: list[str] = []
    if sys.getprofile() is not None:  # a profiler's place: callers find out by trying again
        yield noted
        return

    def look(frame: types.FrameType, event: str, called: Any) -> None:
        if event == "c_call" and called in _ENTROPY:
            noted.append("it draws random numbers of its own, other ones each time")
        elif (
            event == "c_call"
            and called in _CLOCKS
            and package(frame.f_globals.get("__name__")) not in LIBRARIES
        ):
            noted.append("it looks at the clock")
        elif event == "call" and frame.f_code is _SEED and frame.f_locals["a"] is None:
            noted.append("it makes a random generator of its own, seeded anew each time")

    sys.setprofile(look)
    try:
        yield noted
    finally:
        sys.setprofile(None)


def reseeded(agent: Any, seed: int) -> Any:
    """The agent, with every random generator that it holds seeded anew.

    Copies of one agent would draw the same numbers in each replication.
    """
    seeds, seen = np.random.SeedSequence(seed), set()
    stack = [agent]
    while stack:
        thing = stack.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, np.random.Generator):
            bits = type(thing.bit_generator)
            thing.bit_generator.state = bits(seeds.spawn(1)[0]).state
        elif isinstance(thing, np.random.RandomState | random.Random):
            thing.seed(int(seeds.spawn(1)[0].generate_state(1)[0]))
        elif isinstance(thing, dict):
            stack += list(thing.values())[::-1]
        elif isinstance(thing, list | tuple | set):
            stack += list(thing)[::-1]
        elif hasattr(thing, "__dict__") and not isinstance(thing, type | types.ModuleType):
            stack += list(vars(thing).values())[::-1]
    return agent
