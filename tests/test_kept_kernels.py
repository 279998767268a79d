"""Kernels on disk: found by the next process, never stale, never in numba's own cache."""

import importlib
import os
import pathlib
import pkgutil
import subprocess
import sys

from numba.core.caching import NullCache
from numba.core.dispatcher import Dispatcher

import irsppl
from irsppl.inner.cpu import compiling


def test_a_second_process_finds_the_kernels(tmp_path):
    code = (
        "import irsppl, numpy as np\n"
        "from irsppl.engine import kernel\n"
        "from irsppl.policies import find_policy\n"
        "bandit = irsppl.Bandit(irsppl.BetaBernoulli([1., 2.], [1., 1.]), 5)\n"
        "print(kernel(find_policy('random'), bandit).decisions(np.arange(30, dtype=np.uint64)))\n"
        "from irsppl.engine.loops import play\n"
        "print(sum(play.stats.cache_hits.values()), sum(play.stats.cache_misses.values()))\n"
    )
    told = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        told.append(done.stdout.split("\n"))
    assert told[0][0] == told[1][0]
    assert (told[0][1], told[1][1]) == ("0 1", "1 0")


def test_no_kernel_is_kept_by_numba_itself():
    """It would not see that another file, of which the kernel calls something, has changed."""
    found = 0
    for package in (irsppl.engine, irsppl.inner):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, Dispatcher):
                    found += 1
                    assert isinstance(value._cache, compiling.Cache | NullCache), value
    assert found > 150


def test_kernels_are_kept_where_the_package_cannot_be_written(tmp_path, monkeypatch):
    blocked = tmp_path / "package"
    blocked.write_text("a file, so nothing can be put below it")
    monkeypatch.setattr(compiling, "_PACKAGE", pathlib.Path(blocked))
    monkeypatch.setattr(compiling.numba.config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    found = compiling.folder.__wrapped__()
    assert found is not None
    assert compiling.fingerprint() in found
    assert not found.startswith(str(blocked))
    assert os.access(found, os.W_OK)


def test_a_changed_file_of_kernels_is_compiled_anew(tmp_path, monkeypatch):
    """A constant is no part of a function's bytecode, which is all that numba looks at."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from own import shifted\n"
        "print(shifted(1.0), sum(shifted.stats.cache_hits.values()))\n"
    )
    found = []
    for shift in (2.0, 2.0, 3.0):
        (tmp_path / "own.py").write_text(
            "from irsppl.inner.cpu.compiling import njit\n\n\n@njit(cache=True)\n"
            f"def shifted(x):\n    return x + {shift}\n"
        )
        command = [sys.executable, "-B", "-c", code, str(tmp_path)]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found.append(out.split())
    assert found == [["3.0", "0"], ["3.0", "1"], ["4.0", "0"]]
