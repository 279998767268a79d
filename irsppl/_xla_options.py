"""Options for XLA programs that a user waits for: compiling them takes longer than running them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax


def jit(options: Callable[[], dict[str, Any]], **settings: Any) -> Callable[..., Any]:
    """`jax.jit` with options that are asked for when a program is needed: the backend matters."""

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.cache
        def program(*chosen: tuple[str, Any]) -> Callable[..., Any]:
            return jax.jit(function, compiler_options=dict(chosen), **settings)

        @functools.wraps(function)
        def call(*given: Any) -> Any:
            return program(*options().items())(*given)

        return call

    return wrap


def filter_jit(function: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
    """equinox's, whose types do not tell that it hands settings on; made anew it costs nothing."""
    make: Any = eqx.filter_jit
    return make(function, compiler_options=options)


def quick() -> dict[str, Any]:
    """For what runs a few times only: it had better compile quickly than well."""
    return {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else {}


def lean() -> dict[str, Any]:
    """For large programs that run often: they compile in half the time and are hardly slower.

    XLA's older way of writing fused loops, and LLVM's first level.
    """
    config: Any = jax.config
    if jax.default_backend() != "cpu" or config.values.get("jax_disable_most_optimizations"):
        return {}
    options = {"xla_backend_optimization_level": 1, "xla_cpu_use_fusion_emitters": False}
    return {name: value for name, value in options.items() if _known(name, value)}


@functools.cache
def _known(name: str, value: Any) -> bool:
    """Whether this version of XLA has the option."""
    try:
        jax.jit(lambda: 0, compiler_options={name: value}).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True
