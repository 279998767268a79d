"""Bandits, beliefs and policies as numbers and JSON, with a checksum; nothing is ever executed.

Only classes of irsppl itself can be named in a record, and their fields are filled in without
running a constructor. A user's NumPyro model is not stored: a record refers to it by number, and
whoever reads the record brings the models (see `irsppl.live.models`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
import zlib
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from irsppl._fields import assemble
from irsppl.beliefs import ArmModel
from irsppl.horizons import SurvivorTable

_MAGIC = b"irsppl01"


class DamagedError(ValueError):
    """A stored record is not what was written."""


def pack(value: Any) -> bytes:
    """Bytes of a tree of None, numbers, text, lists, dicts, arrays and irsppl objects."""
    return _Writer([]).bytes(value)


def pack_with_models(value: Any, known: Sequence[ArmModel] = ()) -> tuple[bytes, list[ArmModel]]:
    """The same, with the users' models that it refers to by number: those known, and new ones."""
    models = list(known)
    return _Writer(models).bytes(value), models


def unpack(data: bytes, models: Sequence[ArmModel] = (), what: str = "a record") -> Any:
    """What was packed. Raises `DamagedError` where the checksum does not fit."""
    data = bytes(data)
    if data[:8] != _MAGIC or len(data) < 40:
        raise DamagedError(f"{what} is damaged: it does not start as one of irsppl's does")
    body = data[40:]
    if hashlib.sha256(body).digest() != data[8:40]:
        raise DamagedError(f"{what} is damaged: its checksum does not fit its content")
    body = zlib.decompress(body)
    size = int.from_bytes(body[:8], "little")
    head, blob = json.loads(body[8 : 8 + size]), body[8 + size :]
    return _Reader(blob, models, what).read(head)


class _Writer:
    def __init__(self, models: list[ArmModel]):
        self.parts: list[bytes] = []
        self.size = 0
        self.models = models

    def bytes(self, value: Any) -> bytes:
        head = json.dumps(self.write(value), allow_nan=False).encode()
        body = zlib.compress(b"".join([len(head).to_bytes(8, "little"), head, *self.parts]), 1)
        return _MAGIC + hashlib.sha256(body).digest() + body

    def write(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return {"float": value.hex()}  # exact, and infinity has no other way into JSON
        if isinstance(value, list | tuple):
            name = "list" if isinstance(value, list) else "tuple"
            return {name: [self.write(part) for part in value]}
        if isinstance(value, dict):
            return {"dict": {str(name): self.write(part) for name, part in value.items()}}
        if isinstance(value, jax.Array | np.ndarray | np.generic):
            return self._array(value)
        if _is_model(value):
            if not any(value is known for known in self.models):
                self.models.append(value)
            return {"model": next(i for i, m in enumerate(self.models) if m is value)}
        if isinstance(value, SurvivorTable):
            return {"survivor": self.write(np.asarray(value.values))}
        if isinstance(value, eqx.Module):
            fields = {f.name: self.write(getattr(value, f.name)) for f in dataclasses.fields(value)}
            return {"class": _name(type(value)), "fields": fields}
        raise ValueError(f"cannot be stored in an experiment: {value!r}")

    def _array(self, value: Any) -> Any:
        kind = "numpy"
        if isinstance(value, jax.Array):
            kind = "jax"
            if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
                kind, value = "key", jax.random.key_data(value)
        host = np.asarray(value)
        raw = np.ascontiguousarray(host.astype(host.dtype.newbyteorder("<"))).tobytes()
        where, self.size = self.size, self.size + len(raw)
        self.parts.append(raw)
        return {kind: [host.dtype.str.replace(">", "<"), list(host.shape), where, len(raw)]}


class _Reader:
    def __init__(self, blob: bytes, models: Sequence[ArmModel], what: str):
        self.blob, self.models, self.what = blob, models, what

    def read(self, written: Any) -> Any:
        if not isinstance(written, dict):
            return written
        kind = next(iter(written))
        value = written[kind]
        if kind == "float":
            return float.fromhex(value)
        if kind in ("list", "tuple"):
            parts = [self.read(part) for part in value]
            return parts if kind == "list" else tuple(parts)
        if kind == "dict":
            return {name: self.read(part) for name, part in value.items()}
        if kind in ("numpy", "jax", "key"):
            return self._array(kind, *value)
        if kind == "zeros":
            dtype, shape = value
            return jnp.zeros(shape, np.dtype(dtype))
        if kind == "model":
            if value >= len(self.models):
                raise ValueError(f"{self.what} needs the user's NumPyro model again: give model=")
            return self.models[value]
        if kind == "survivor":
            return SurvivorTable(self.read(value))
        if kind == "class":
            return self._object(value, written["fields"])
        raise DamagedError(f"{self.what} holds {kind!r}, which this version does not know")

    def _array(self, kind: str, dtype: str, shape: list[int], start: int, size: int) -> Any:
        host = np.frombuffer(self.blob[start : start + size], np.dtype(dtype)).reshape(shape)
        if kind == "numpy":
            return host.copy()
        if kind == "key":
            return jax.random.wrap_key_data(jnp.asarray(host))
        if host.dtype.itemsize == 8 and not jax.config.read("jax_enable_x64"):
            with jax.enable_x64(True):
                return jnp.asarray(host)
        return jnp.asarray(host)

    def _object(self, name: str, fields: dict[str, Any]) -> Any:
        cls = _class(name, self.what)
        fields = _OLDER.get(name, dict)(fields)
        known = {field.name for field in dataclasses.fields(cls)}
        if known != set(fields):
            raise ValueError(
                f"{self.what} was written by another version of irsppl, where {name} had other "
                f"fields ({', '.join(sorted(known ^ set(fields)))}): open it with that version"
            )
        return assemble(cls, {field: self.read(value) for field, value in fields.items()})


def _with_limits(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of a bandit, also of one that was stored when it had a slot for each constraint."""
    if "access" in fields:
        return fields
    slots = ("delay", "purse", "survivor", "capped", "law", "tail")
    delay, purse, survivor, capped, law, tail = (fields.pop(slot) for slot in slots)
    if purse:
        purse["fields"]["capped"] = capped
    end = _of("horizons:Law", survivor=survivor, table=law, tail=tail) if survivor else None
    return fields | {
        "access": purse or _of("constraints:Free"),
        "arrivals": delay or _of("constraints:Prompt"),
        "end": end or _of("constraints:Sure"),
    }


def _of(name: str, **fields: Any) -> dict[str, Any]:
    return {"class": f"irsppl.{name}", "fields": fields}


def _with_gap(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of quadrature, also of one from before it knew of modes between its nodes."""
    if "gap" in fields:
        return fields
    ((dtype, shape, _, _),) = fields["mu"].values()
    arms = shape[:1]
    return fields | {"gap": {"zeros": [dtype, arms]}, "missed": {"zeros": ["|b1", arms]}}


# What older versions wrote for a class, as this one would.
_OLDER = {
    "irsppl.bandit:Bandit": _with_limits,
    "irsppl.beliefs.quadrature:Quadrature": _with_gap,
    "irsppl.policies.lagrangian:LagrangianIndex": lambda fields: {"first": None, **fields},
}


def _is_model(value: Any) -> bool:
    # Reading models loads NumPyro, which takes a second: whoever has one has loaded it already.
    models = sys.modules.get("irsppl.models")
    return models is not None and isinstance(value, models.ArmModel)


def _name(cls: type) -> str:
    module = cls.__module__
    if module.split(".")[0] != "irsppl" or "." in cls.__qualname__:
        raise ValueError(
            f"an experiment stores beliefs and policies of irsppl only, not {module}.{cls.__name__}"
        )
    return f"{module}:{cls.__name__}"


def _class(name: str, what: str) -> type[eqx.Module]:
    module, _, cls = name.partition(":")
    if module.split(".")[0] == "irsppl":
        if module not in sys.modules:
            try:
                import_module(module)
            except ImportError:
                raise ValueError(f"{what} names {name}, which this version lacks") from None
        found = getattr(sys.modules[module], cls, None)
        if isinstance(found, type) and issubclass(found, eqx.Module):
            return found
    raise DamagedError(f"{what} names {name!r}, which is no class of irsppl")
