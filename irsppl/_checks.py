"""Shared helpers: reading keys, checking arguments, telling traced values from concrete ones."""

from __future__ import annotations

import numbers
import types
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irsppl import _xla_cache

_xla_cache.switch_on()  # here, because everything that uses JAX imports this module first

# A bandit keeps a record of every pull, and a future has a reward per arm and period: 10 arms take
# half a gigabyte here, and numbers of pulls stay exact in float32 (2^24).
MOST_PERIODS = 10_000_000
# Futures are numbered in 32 bits, and the values of so many take a gigabyte.
MOST_FUTURES = 100_000_000


def is_concrete(*values: Any) -> bool:
    """True when no value is a JAX tracer, so that its content may be looked at."""
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(values))


def depends_on_input(jaxpr: Any) -> list[bool]:
    """For each output, whether some operation on its way takes an input."""
    tainted = set(jaxpr.invars)
    for eqn in jaxpr.eqns:
        if any(not hasattr(atom, "val") and atom in tainted for atom in eqn.invars):
            tainted.update(eqn.outvars)
    return [not hasattr(atom, "val") and atom in tainted for atom in jaxpr.outvars]


def as_key(key: Any) -> jax.Array:
    """A typed JAX key from an int seed (0 to 2^64 - 1), a typed key, or a raw `uint32[2]` key.

    JAX itself cuts a seed to its low 32 bits unless it is in 64-bit mode: two seeds that are taken
    from a clock would be one. Here a seed means the same in both modes.
    """
    if isinstance(key, (bool, np.bool_)):
        raise ValueError(f"key must be an int seed or a JAX key, got {key!r}")
    if isinstance(key, (numbers.Integral, np.integer)):
        seed = int(key)
        if not 0 <= seed < 2**64:
            raise ValueError(f"key must be a seed from 0 to 2**64 - 1, or a JAX key, got {seed}")
        if seed < 2**31:
            return jax.random.key(seed)
        words = np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32)
        return jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")
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


@jax.jit
def numbered_keys(key: jax.Array, numbers: jax.Array) -> jax.Array:
    """The keys of these numbers, uint32 `[n]`."""
    return jax.vmap(lambda number: jax.random.fold_in(key, number))(numbers)


def as_floats(name: str, value: Any, ndim: int | None = 1) -> jax.Array:
    """`value` as a floating array; the dtype follows the input (ints become the default float)."""
    if is_concrete(value) and not isinstance(value, jax.Array):
        # NumPy first: JAX would wrap whole numbers around at 32 bits.
        host = as_numbers(name, value)
        value = host if np.issubdtype(host.dtype, np.inexact) else host.astype(np.float64)
    try:
        with np.errstate(over="ignore"):  # infinite in float32: refused where it must be finite
            array = jnp.asarray(value)
    except (TypeError, ValueError, OverflowError) as error:
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


def as_numbers(name: str, value: Any) -> np.ndarray:
    """`value` on the host as NumPy reads it; text, objects and ragged lists are no numbers."""
    try:
        host = np.asarray(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must be numbers, got {value!r}") from error
    if host.dtype == object and all(isinstance(x, numbers.Real) for x in host.ravel()):
        host = np.array([_as_float(x) for x in host.ravel()]).reshape(host.shape)
    if not (np.issubdtype(host.dtype, np.number) or host.dtype in (bool, jnp.bfloat16)):
        raise ValueError(f"{name} must be an array of numbers, got {value!r}")
    return host


def _as_float(number: Any) -> float:
    """Whole numbers beyond 64 bits, and fractions."""
    try:
        return float(number)
    except OverflowError:
        return np.inf if number > 0 else -np.inf


def check_number(name: str, value: Any) -> None:
    """Refuse what is not one real number (NaN and infinity are numbers here; tracers pass)."""
    if not is_concrete(value):
        return
    host = as_numbers(name, value)
    if host.shape:
        raise ValueError(f"{name} must be one number, got shape {host.shape}")
    if np.issubdtype(host.dtype, np.complexfloating):
        raise ValueError(f"{name} must be real, got {value!r}")
    if np.asarray(value).dtype == object:
        raise ValueError(f"{name} must be a number that fits 64 bits, got {value!r}")


def check_levels(name: str, value: Any, num_arms: int) -> None:
    """Refuse what is not one finite number, or one per arm (tracers pass)."""
    if not is_concrete(value):
        return
    host = as_numbers(name, value)
    good = host.shape in ((), (1,), (num_arms,)) and not np.iscomplexobj(host)
    most = np.finfo(jnp.result_type(float)).max ** 0.5  # its square is taken
    if not good or not np.all(np.abs(host.astype(np.float64)) <= most):
        raise ValueError(
            f"{name} must be one finite number, or one per arm ({num_arms}), got {value!r}"
        )


def check_flag(name: str, value: Any) -> None:
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {value!r}")


def check_run(progress: Any, workers: Any = None) -> None:
    """The arguments of a long run that say how it is done, not what."""
    if progress is not None:
        check_flag("progress", progress)
    if workers is not None:
        as_count("workers", workers)


def same_arms(**given: Any) -> tuple[jax.Array, ...]:
    """Arrays in a common dtype; each must have one entry per arm, nothing is broadcast."""
    arrays = {name: as_floats(name, value) for name, value in given.items()}
    lengths = {name: array.shape[0] for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        sizes = ", ".join(f"{name} has {n}" for name, n in lengths.items())
        raise ValueError(f"{', '.join(lengths)} must have one entry per arm: {sizes}")
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
            valid = f"at least {least:.2g}, so that {host.dtype} can hold its square"
            require(name, host, host >= least, valid)


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


def as_count(
    name: str, value: Any, minimum: int = 1, maximum: int | None = None, why: str = ""
) -> int:
    """A Python int from `minimum` to `maximum`; floats, bools and NaN are refused.

    why: a sentence on the reason for the maximum, with advice.
    """
    integral = isinstance(value, (numbers.Integral, np.integer)) and not isinstance(value, bool)
    if isinstance(value, (jax.Array, np.ndarray)) and value.ndim == 0:
        integral = jnp.issubdtype(value.dtype, jnp.integer)
    if not integral:
        raise ValueError(f"{name} must be a whole number of at least {minimum}, got {value!r}")
    if int(value) < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value!r}")
    if maximum is not None and int(value) > maximum:
        raise ValueError(f"{name} must be at most {maximum:,}, got {int(value):,}{why}")
    return int(value)


def one_of(name: str, value: Any, known: Iterable[str]) -> str:
    known = sorted(known)
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"unknown {name} {value!r}; known: {', '.join(known)}")
    return value


def require_pseudo_counts(name: str, array: Any) -> None:
    """Positive, and not so large that densities and further rewards are lost to rounding."""
    require_positive(name, array)
    if is_concrete(array):
        require(name, array, np.asarray(array) <= 1e9, "at most 1e9")


def is_listing(value: Any) -> bool:
    """Whether `value` holds several names or objects; text, a module and an array are one."""
    single = (str, bytes, type, eqx.Module, jax.Array, np.ndarray)
    return isinstance(value, Iterable) and not isinstance(value, single)


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


def names_in(code: types.CodeType) -> Iterator[str]:
    """Names that code, and the functions within it, look up outside themselves."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in(constant)
