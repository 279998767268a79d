"""Compiled kernels on disk, in a folder named by what they were compiled from.

numba's own cache knows a kernel's own file only, and would serve a kernel that is stale because
something it calls has changed. Here the folder's name holds a hash of every source that a kernel
can reach, so a changed file is a new folder, and copies of the package share what is the same. A
rule or family from outside the package is compiled anew in each process: its sources are not among
those, and another process, which may not have its module at all, must be able to read the folder.
"""

from __future__ import annotations

import atexit
import functools
import gc
import hashlib
import os
import pathlib
import pickle
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from typing import Any

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.registry import CPUDispatcher
from numba.core.serialize import dumps
from numba.core.targetconfig import ConfigStack
from numba.core.types.containers import BaseNamedTuple, BaseTuple
from numba.misc.appdirs import AppDirs

_PACKAGE = pathlib.Path(__file__).parents[2]
_SOURCES = (_PACKAGE / "engine", _PACKAGE / "inner")

# A compiler leaves 200,000 objects, and Python looks for cycles among them several times while it
# shuts down, for half a second: the system takes all memory back anyway.
atexit.register(gc.freeze)


@functools.cache
def fingerprint() -> str:
    """A hash of the sources of all kernels."""
    digest = hashlib.sha256(numba.__version__.encode())
    for folder in _SOURCES:
        for path in sorted(folder.rglob("*.py")):
            digest.update(str(path.relative_to(_PACKAGE)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def folder() -> str | None:
    """Where kernels are kept: the first of several places that can be written to."""
    own = AppDirs(appname="irsppl", appauthor=False).user_cache_dir
    user = os.getuid() if hasattr(os, "getuid") else 0
    places = [
        numba.config.CACHE_DIR and os.path.join(numba.config.CACHE_DIR, "irsppl"),
        str(_PACKAGE / "__pycache__"),
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
    def __init__(self, path: str, file: str, line: int):
        self._path, self._py_file, self._line = path, file, line

    def get_cache_path(self) -> str:
        return self._path

    def get_source_stamp(self) -> str:
        return fingerprint()

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _Locator | None:
        path = folder()
        return None if path is None else cls(path, py_file, py_func.__code__.co_firstlineno)


class _Impl(CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012


class _Files:
    """One file per kernel and signature, so that no file names a class which its reader lacks."""

    def __init__(self, stem: str):
        self._stem = stem

    def load(self, key: str | None) -> Any:
        try:
            return pickle.loads(pathlib.Path(f"{self._stem}-{key}.nbc").read_bytes())
        except (OSError, EOFError, pickle.UnpicklingError):  # not there, or torn: compiled again
            return None

    def save(self, key: str | None, data: Any) -> None:
        if key is None:
            return
        with tempfile.NamedTemporaryFile(dir=os.path.dirname(self._stem), delete=False) as file:
            file.write(dumps(data))
        os.replace(file.name, f"{self._stem}-{key}.nbc")


@functools.cache
def _contents(file: str) -> str | None:
    """A hash of a file with kernels, which may be none of the package's; None: it is no file."""
    try:
        return hashlib.sha256(pathlib.Path(file).read_bytes()).hexdigest()
    except OSError:
        return None


def _classes(of: Any) -> Iterator[type]:
    """The tuple classes that numba types hold, at any depth."""
    if isinstance(of, BaseNamedTuple):
        yield of.instance_class
    if isinstance(of, BaseTuple):
        for part in of:
            yield from _classes(part)


class Cache(FunctionCache):
    _impl_class = _Impl

    def __init__(self, function: Any):
        super().__init__(function)
        self._cache_file = _Files(os.path.join(self._cache_path, self._impl.filename_base))

    def _index_key(self, sig: Any, codegen: Any) -> str | None:
        """None where a class is not the package's own, or the kernel was typed in."""
        classes = [c for of in sig for c in _classes(of)]
        contents = _contents(self._py_func.__code__.co_filename)
        if contents is None or any(
            c.__module__.partition(".")[0] != __package__.partition(".")[0] for c in classes
        ):
            return None
        _, machine, code = super()._index_key(sig, codegen)
        names = [f"{c.__module__}.{c.__qualname__}" for c in classes]
        names += [self._py_func.__module__, contents]
        return hashlib.sha256(repr((sig, names, machine, code)).encode()).hexdigest()[:24]


class _InlinedCode(JITCodeLibrary):
    """Code that runs as a part of its callers only: it is optimised and made into machine code with
    them, not alone."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0

    @property
    def codegen(self) -> Any:
        return self

    def set_env(self, name: str, env: Any) -> None:
        """No Python object is reached from kernels, nor from those that were read from disk."""


class Inlined(Compiler):
    """For what no Python code can call, and callers take in whole: kernels compile sooner."""

    def __init__(self, typing: Any, target: Any, library: Any, *rest: Any):
        super().__init__(typing, target, _InlinedCode(target.codegen(), "inlined"), *rest)


class _Kernel(CPUDispatcher):
    """For Python a kernel of its own; for other kernels a part that they take in.

    Options that a function does not state are its caller's (inlining, liberties with sums). numba
    compiles it for the first caller and serves the result to all: how fast kernels were, and their
    last digits, went by what a process had compiled before. Here callers with other options have
    another part.
    """

    _INHERITED = ("forceinline", "fastmath", "error_model", "nrt")

    def __init__(self, *given: Any, **named: Any):
        super().__init__(*given, **named)
        self._parts: dict[tuple[str, ...], CPUDispatcher] = {}

    def _part(self) -> Any:
        """What the kernel that is being compiled calls; where none is, this one itself."""
        caller = ConfigStack.top_or_none()
        if caller is None:
            return super()
        key = tuple(str(getattr(caller, name)) for name in self._INHERITED)
        if key not in self._parts:
            options = {**self.targetoptions, "no_cpython_wrapper": True}  # Python never calls it
            self._parts[key] = CPUDispatcher(
                self.py_func, targetoptions=options, pipeline_class=Inlined
            )
        return self._parts[key]

    def get_call_template(self, args: Any, kws: Any) -> Any:
        return self._part().get_call_template(args, kws)

    def get_overload(self, sig: Any) -> Any:
        return self._part().get_overload(sig)


def njit(cache: bool = False, **options: Any) -> Callable[[Any], Any]:
    """numba's, with `cache` by the sources of all kernels; none where no place is writable."""

    def compile(function: Any) -> Any:
        compiled = _Kernel(function, targetoptions={"nopython": True, **options})
        if cache and folder() is not None:
            compiled._cache = Cache(function)
        return compiled

    return compile


def from_text(text: str) -> dict[str, Any]:
    """The names that a generated module defines. Its file lies beside what is compiled of it."""
    name = f"model-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    place = folder()
    path = os.path.join(place, f"{name}.txt") if place else f"<{name}>"
    if place and not os.path.exists(path):
        with tempfile.NamedTemporaryFile("w", dir=place, delete=False) as file:
            file.write(text)
        os.replace(file.name, path)
    module = types.ModuleType(f"{__package__}.{name}")
    sys.modules[module.__name__] = module  # where numba looks for it when it reads the kernel again
    exec(compile(text, path, "exec"), module.__dict__)
    return module.__dict__


def address_of(kernel: Any, types: tuple[Any, ...]) -> int:
    """Where the machine code of a kernel lies, for these types of arguments.

    It holds as long as the kernel exists. Who calls it has to pass just these types.
    """
    kernel.compile(types)
    made = kernel.overloads[types]
    return made.library.get_pointer_to_function(made.fndesc.llvm_func_name)
