"""`python -m tests`: linting, formatting, types, then every test on all cores."""

import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parent.parent


def main() -> int:
    steps = [
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
        ["mypy"],
        ["pytest", "-q", "-n", "auto", "--dist", "worksteal", *sys.argv[1:]],
    ]
    # Compilation is most of the time: what one worker has compiled, the others need not.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        shared = {
            "JAX_COMPILATION_CACHE_DIR": cache,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none",
        }
        for step in steps:
            print("$", *step, flush=True)
            command = [sys.executable, "-m", *step]
            code = subprocess.run(command, cwd=ROOT, env=shared | os.environ).returncode
            if code:
                return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
