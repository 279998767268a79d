"""Immutable objects with other fields, where `equinox.tree_at` does not reach: static ones."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import equinox as eqx

M = TypeVar("M", bound=eqx.Module)


def assemble(cls: type[M], fields: dict[str, Any]) -> M:
    """An object from all its fields, whose constructor has had its say before: when it was first
    made, or written down."""
    made = cls.__new__(cls)
    vars(made).update(fields)
    return made


def changed(old: M, **fields: Any) -> M:
    """The same with some other fields; whoever asks knows that they fit."""
    known = {field.name: getattr(old, field.name) for field in dataclasses.fields(old)}  # type: ignore[arg-type]
    assert set(fields) <= set(known)
    return assemble(type(old), known | fields)
