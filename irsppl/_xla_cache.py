"""Compiled XLA programs are kept on disk between processes, unless the user has decided otherwise.

JAX keys a program by its code, its options and the compiler's version, so that nothing stale is
served; the folder is also named by the processor, for homes that machines of several kinds share.
"""

from __future__ import annotations

import gc
import hashlib
import os
import pathlib
import platform
import sys
import tempfile
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

# "off" for none, or a folder to use.
VARIABLE = "IRSPPL_XLA_CACHE"
_OFF = ("off", "0", "no", "false", "none")
# All programs are kept: reading one model takes over a hundred small ones, and compiling them
# again took two thirds of a second process's time.
_WORTH_SECONDS = 0.0


def switch_on() -> str | None:
    """The folder that is used from now on, or None where nothing was changed.

    A setting of JAX's own (its environment variables, or `jax.config` before the first name of
    irsppl that needs JAX) is left alone, and so is everything where no folder can be written to.
    """
    config: Any = jax.config
    wanted = os.environ.get(VARIABLE, "").strip()
    if wanted.lower() in _OFF or config.jax_compilation_cache_dir:
        return None
    if not config.jax_enable_compilation_cache:
        return None
    folder = pathlib.Path(wanted) if wanted else user_folder("xla")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return None
    config.update("jax_compilation_cache_dir", str(folder))
    for name, value in (
        ("jax_persistent_cache_min_compile_time_secs", _WORTH_SECONDS),
        ("jax_persistent_cache_enable_xla_caches", "none"),
    ):
        if name.upper() not in os.environ:
            config.update(name, value)
    compilation_cache.reset_cache()  # a program compiled earlier may have found the cache off
    return str(folder)


# Share of the memory maps that Linux grants a process at which programs are let go.
_FULL = 0.6


def make_room() -> bool:
    """Let go of all compiled programs if they have nearly used up the process's memory maps.

    Each takes a few of 65,530, and programs of a model stay as long as JAX remembers it: after some
    sixty models the compiler would end the process. What is needed again comes back from disk.
    """
    own, granted = pathlib.Path("/proc/self/maps"), pathlib.Path("/proc/sys/vm/max_map_count")
    try:
        with own.open("rb") as lines:
            used = sum(1 for _ in lines)
        most = int(granted.read_text())
    except (OSError, ValueError):
        return False  # another system, or one that does not tell
    if used <= _FULL * most:
        return False
    jax.clear_caches()
    gc.collect()
    return True


def user_folder(what: str) -> pathlib.Path:
    """Where compiled things of this processor are kept for the user."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or os.path.expanduser("~/AppData/Local")
    elif sys.platform == "darwin":
        base = os.path.expanduser("~/Library/Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(base) / "irsppl" / f"{what}-{_machine()}"


def _machine() -> str:
    """A short name of the processor and what it can do."""
    features = [platform.machine(), platform.processor()]
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        features += next(
            (line for line in lines if line.startswith(("flags", "Features"))), ""
        ).split()
    except OSError:
        pass
    return hashlib.sha256(" ".join(features).encode()).hexdigest()[:12]
