"""Compiled kernels on disk, in a folder named by what they were compiled from.

numba's own cache knows a kernel's own file only, and would serve a kernel that is stale because
something it calls has changed. Here the folder's name holds a hash of every source that a kernel of
the engine can reach, so a changed file is a new folder.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pathlib
import tempfile
from typing import Any

import numba
from numba import njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.misc.appdirs import AppDirs

from irsppl.engine.verbs import OPTIONS

_HERE = pathlib.Path(__file__).parent
_SOURCES = (_HERE, _HERE.parent / "inner")


@functools.cache
def fingerprint() -> str:
    """A hash of the sources of all kernels."""
    digest = hashlib.sha256(numba.__version__.encode())
    for folder in _SOURCES:
        for path in sorted(folder.rglob("*.py")):
            digest.update(str(path.relative_to(_HERE.parent)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def folder() -> str | None:
    """Where kernels are kept: the first of several places that can be written to."""
    own = AppDirs(appname="irsppl", appauthor=False).user_cache_dir
    user = os.getuid() if hasattr(os, "getuid") else 0
    places = [
        numba.config.CACHE_DIR and os.path.join(numba.config.CACHE_DIR, "irsppl"),
        str(_HERE / "__pycache__"),
        own,
        os.path.join(tempfile.gettempdir(), f"irsppl-{user}"),
    ]
    for place in places:
        if not place:
            continue
        path = os.path.join(place, f"kernels-{fingerprint()}")
        try:
            os.makedirs(path, exist_ok=True)
            tempfile.TemporaryFile(dir=path).close()
        except OSError:
            continue
        return path
    return None


class _Locator(_CacheLocator):
    def __init__(self, path: str, line: int):
        self._path, self._line = path, line

    def get_cache_path(self) -> str:
        return self._path

    def get_source_stamp(self) -> str:
        return fingerprint()

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _Locator | None:
        path = folder()
        return None if path is None else cls(path, py_func.__code__.co_firstlineno)


class _Impl(CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012


class _Cache(FunctionCache):
    _impl_class = _Impl


def kernel(function: Any) -> Any:
    """`njit`, cached by the sources of the whole engine; not cached where no place is writable."""
    compiled = njit(**OPTIONS)(function)
    if folder() is not None:
        compiled._cache = _Cache(function)
    return compiled
