"""Shared helpers: reading keys, checking arguments, telling traced values from concrete ones."""

from __future__ import annotations

import numbers
import zlib
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def is_concrete(*values: Any) -> bool:
    """True when no value is a JAX tracer, so that its content may be looked at."""
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(values))


def as_key(key: Any) -> jax.Array:
    """A typed JAX key from an int seed, a typed key, or a raw `uint32[2]` key."""
    if isinstance(key, (bool, np.bool_)):
        raise ValueError(f"key must be an int seed or a JAX key, got {key!r}")
    if isinstance(key, (numbers.Integral, np.integer)):
        return jax.random.key(int(key))
    if isinstance(key, (jax.Array, np.ndarray)):
        if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
            if key.shape:
                raise ValueError(f"key must be one key, got an array of keys of shape {key.shape}")
            return jnp.asarray(key)
        if key.dtype == np.uint32 and key.shape == (2,):
            return jax.random.wrap_key_data(jnp.asarray(key))
    raise ValueError(f"key must be an int seed or a JAX key, got {key!r}")


def side_key(key: jax.Array, name: str) -> jax.Array:
    """A key beside those that `jax.random.split` makes of the same one.

    `fold_in(key, i)` with a small i *is* the i-th key of a split, so that what should be
    independent of parameters and rewards would share their stream.
    """
    return jax.random.fold_in(key, zlib.crc32(name.encode()))


def as_floats(name: str, value: Any, ndim: int | None = 1) -> jax.Array:
    """`value` as a floating array; the dtype follows the input (ints become the default float)."""
    try:
        array = jnp.asarray(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of numbers, got {value!r}") from error
    if not (jnp.issubdtype(array.dtype, jnp.number) or array.dtype == bool):
        raise ValueError(f"{name} must be an array of numbers, got dtype {array.dtype}")
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise ValueError(f"{name} must be real, got dtype {array.dtype}")
    if not jnp.issubdtype(array.dtype, jnp.floating):
        array = array.astype(jnp.result_type(float))
    if ndim is not None and array.ndim != ndim:
        shape = {1: "one number per arm, [K]", 2: "a table [K, C]"}.get(ndim, f"{ndim}-d")
        raise ValueError(f"{name} must be {shape}, got shape {array.shape}: {value!r}")
    if array.size == 0:
        raise ValueError(f"{name} must not be empty")
    return array


def same_arms(**arrays: jax.Array) -> tuple[jax.Array, ...]:
    """The arrays in a common dtype; each must have one entry per arm, nothing is broadcast."""
    lengths = {name: array.shape[0] for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} has {n}" for name, n in lengths.items())
        raise ValueError(f"{', '.join(lengths)} must have one entry per arm: {told}")
    dtype = jnp.result_type(*arrays.values())
    return tuple(array.astype(dtype) for array in arrays.values())


def require(name: str, array: Any, ok: Any, valid: str) -> None:
    """Raise `ValueError` naming the argument unless `ok` holds everywhere (skipped for tracers)."""
    if not is_concrete(array, ok):
        return
    if not np.all(np.asarray(ok)):
        raise ValueError(f"{name} must be {valid}, got {np.asarray(array).tolist()}")


def require_positive(name: str, array: Any) -> None:
    if is_concrete(array):
        host = np.asarray(array)
        require(name, host, np.isfinite(host) & (host > 0), "positive and finite")
        if host.dtype.kind == "f":
            least = np.sqrt(np.finfo(host.dtype).tiny)
            require(
                name,
                host,
                host >= least,
                f"at least {least:.2g}, so that {host.dtype} can hold its square",
            )


def require_finite(name: str, array: Any) -> None:
    if is_concrete(array):
        require(name, array, np.isfinite(np.asarray(array)), "finite")


def require_range(module: Any) -> None:
    """Refuse arrays of a module whose numbers are not finite, or whose squares are not.

    Named after their fields. Log-weights may be minus infinity, but not all of them; a field that
    starts out as NaN throughout says that there is nothing yet.
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(module):
        if not isinstance(leaf, (jax.Array, np.ndarray)) or not jnp.issubdtype(
            leaf.dtype, jnp.floating
        ):
            continue
        names = [str(getattr(key, "name", getattr(key, "key", ""))) for key in path]
        name, host = names[-1], np.asarray(leaf)
        if name == "log_weights":
            top = host.max(axis=-1)
            require(name, top, np.isfinite(top), "finite at some point, and nowhere NaN")
            continue
        if np.all(np.isnan(host)):
            continue
        # Latents are the model's own business, as long as they are numbers.
        most = np.finfo(host.dtype).max if "params" in names else np.finfo(host.dtype).max ** 0.5
        ok = np.abs(host) <= most
        if not np.all(ok):
            raise ValueError(
                f"{name} must be finite and at most {most:.2g} in size, so that {host.dtype} can "
                f"hold its square, got {host[~ok][:3].tolist()}; rescale the rewards, or work in "
                "double precision (jax_enable_x64)"
            )


def as_count(name: str, value: Any, minimum: int = 1) -> int:
    """A Python int of at least `minimum`; floats, bools and NaN are refused."""
    integral = isinstance(value, (numbers.Integral, np.integer)) and not isinstance(value, bool)
    if isinstance(value, (jax.Array, np.ndarray)) and value.ndim == 0:
        integral = np.issubdtype(value.dtype, np.integer)
    if not integral:
        raise ValueError(f"{name} must be a whole number of at least {minimum}, got {value!r}")
    if int(value) < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value!r}")
    return int(value)


def one_of(name: str, value: Any, known: Iterable[str]) -> str:
    known = sorted(known)
    if value not in known:
        raise ValueError(f"unknown {name} {value!r}; known: {', '.join(known)}")
    return value


def host64(array: Any) -> np.ndarray:
    """`array` on the host in float64.

    A float32 0.3 is not the 0.3 its user typed. The shortest decimal that rounds to the stored
    float32 is, so exact computations start from it rather than from the rounding error.
    """
    host = np.asarray(array)
    if host.dtype == np.float32:
        text = [np.format_float_scientific(x, unique=True) for x in host.ravel()]
        return np.array([float(x) for x in text], dtype=np.float64).reshape(host.shape)
    return host.astype(np.float64)
