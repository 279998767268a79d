"""Settings of JAX that numbers depend on, for other threads and processes.

A caller's `with jax.enable_x64()` holds for its own thread only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import jax

_CONTEXTS: dict[str, Any] = {
    "jax_enable_x64": jax.enable_x64,
    "jax_threefry_partitionable": jax.threefry_partitionable,
    "jax_default_prng_impl": jax.default_prng_impl,
    "jax_default_matmul_precision": jax.default_matmul_precision,
}


def settings() -> dict[str, Any]:
    """Those of this thread."""
    return {name: getattr(jax.config, name) for name in _CONTEXTS}


@contextlib.contextmanager
def under(given: dict[str, Any]) -> Iterator[None]:
    """Settings of another thread, in this one."""
    with contextlib.ExitStack() as stack:
        for name, value in given.items():
            stack.enter_context(_CONTEXTS[name](value))
        yield
