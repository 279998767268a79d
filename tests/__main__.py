"""`python -m tests`: linting, formatting, types, then every test on all cores."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent.parent


def main() -> int:
    steps = [
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
        ["mypy"],
        ["pytest", "-q", "-n", "auto", "--dist", "worksteal", *sys.argv[1:]],
    ]
    for step in steps:
        print("$", *step, flush=True)
        code = subprocess.run([sys.executable, "-m", *step], cwd=ROOT).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
