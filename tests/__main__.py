"""`python -m tests`: linting, formatting, then types and every test on all cores."""

import os
import pathlib
import shutil
import subprocess
import sys

from irsppl._xla_cache import user_folder

ROOT = pathlib.Path(__file__).parent.parent
_MOST_BYTES = 4 * 2**30


def kept() -> dict[str, str]:
    """Where compiled programs and types are kept, for both workers and for the next run.

    Compilation is most of the time. JAX names a program by its code, and kernels lie in a folder
    named by their sources: nothing stale can be served, and another clone finds them too.
    """
    folder = pathlib.Path(os.environ.get("IRSPPL_TEST_CACHE") or user_folder("tests"))
    if sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) > _MOST_BYTES:
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "JAX_COMPILATION_CACHE_DIR": str(folder / "xla"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none",
        "NUMBA_CACHE_DIR": str(folder / "numba"),
        "MYPY_CACHE_DIR": str(folder / "mypy"),
    }


def main() -> int:
    environment = kept() | os.environ
    # Each of some hundred processes would translate the package's sources anew.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def start(*step: str) -> subprocess.Popen[bytes]:
        print("$", *step, flush=True)
        return subprocess.Popen([sys.executable, "-m", *step], cwd=ROOT, env=environment)

    for step in (["check"], ["format", "--check"]):
        if code := start("ruff", *step, ".").wait():
            return code
    types = start("mypy")  # on one core, beside the tests
    tests = start("pytest", "-q", "-n", "auto", "--dist", "worksteal", *sys.argv[1:])
    failed, mistyped = tests.wait(), types.wait()
    return failed or mistyped


if __name__ == "__main__":
    sys.exit(main())
