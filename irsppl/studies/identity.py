"""What a study's numbers depend on, as text: the same for equal things, in every process."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import re
import types
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from numpyro.distributions import Distribution

from irsppl._checks import names_in

# What functions of these packages refer to is settled by their versions.
_LIBRARIES = {"irsppl", "jax", "numpy", "numpyro", "equinox", "scipy", "builtins"}


def described(value: Any) -> str:
    """A text that changes when the value does: short things in full, others by a digest."""
    if value is None or isinstance(value, str | bool | int | float):
        return str(value)
    if inspect.isfunction(value) and not _surroundings(value):
        return _source(value)
    text = _canonical(value, ())
    if len(text) <= 80 and "\n" not in text:
        return text
    return f"{type(value).__name__} {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def digest(parts: Any) -> str:
    """Names what something was made of; two digests are equal if all parts are."""
    return hashlib.sha256(_canonical(parts, ()).encode()).hexdigest()[:16]


def _canonical(value: Any, inside: tuple[int, ...]) -> str:
    if value is None or isinstance(value, str | bool | int | float | complex):
        return repr(value)
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        return _array(value)
    if id(value) in inside:  # a thing that holds itself
        return "..."
    inside = (*inside, id(value))

    def each(parts: Any) -> str:
        return ", ".join(_canonical(part, inside) for part in parts)

    name = f"{type(value).__module__}.{type(value).__qualname__}"
    if inspect.isfunction(value):
        parts = [f"{n} = {_canonical(v, inside)}" for n, v in _surroundings(value).items()]
        return "\n".join([_source(value), *parts])
    if inspect.ismethod(value):
        return f"method({each([value.__self__, value.__func__])})"
    if isinstance(value, functools.partial):
        return f"partial({each([value.func, value.args, value.keywords])})"
    if isinstance(value, type | types.ModuleType):
        own = getattr(value, "__qualname__", value.__name__)
        return f"{getattr(value, '__module__', '')}.{own}"
    if isinstance(value, Mapping):
        items = sorted((_canonical(k, inside), _canonical(v, inside)) for k, v in value.items())
        return f"{{{', '.join(f'{k}: {v}' for k, v in items)}}}"
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(_canonical(part, inside) for part in value))}}}"
    if isinstance(value, list | tuple):
        return f"[{each(value)}]"
    if dataclasses.is_dataclass(value):  # beliefs, policies and penalties among them
        fields = {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)}
        return f"{name}({_canonical(fields, inside)})"
    if isinstance(value, Distribution):
        known = {*value.gather_pytree_data_fields(), *value.gather_pytree_aux_fields()}
        fields = {n: vars(value).get(n) for n in known - {"_validate_args"}}
        return f"{name}({_canonical(fields, inside)})"
    return f"{name} {re.sub(r' at 0x[0-9a-fA-F]+', '', repr(value))}"


def _array(value: Any) -> str:
    if isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    host = np.asarray(value)
    if host.dtype == object:
        return f"array({[_canonical(part, ()) for part in host.ravel().tolist()]})"
    content = hashlib.sha256(host.tobytes()).hexdigest()
    return f"array({host.dtype}, {host.shape}, {content})"


def _source(function: Any) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):  # typed at a prompt: no file to read it from
        return f"{function.__qualname__} {_code(function.__code__)}"


def _code(code: types.CodeType) -> str:
    constants = [_code(c) if isinstance(c, types.CodeType) else repr(c) for c in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {constants}"


def _surroundings(function: Any) -> dict[str, Any]:
    """What a function's text does not say: defaults, what it closes over, names of its file."""
    found: dict[str, Any] = {}
    if function.__defaults__:
        found["defaults"] = function.__defaults__
    if function.__kwdefaults__:
        found["keyword defaults"] = function.__kwdefaults__
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not filled yet
            found[name] = None
    home = function.__globals__
    if str(home.get("__name__", "")).partition(".")[0] in _LIBRARIES:
        return found
    for name in sorted(set(names_in(function.__code__)) & home.keys()):
        value = home[name]
        if isinstance(value, types.ModuleType) or (
            str(getattr(value, "__module__", "")).partition(".")[0] in _LIBRARIES
        ):
            continue
        found[f"global {name}"] = value
    return found
