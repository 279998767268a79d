"""How long a person waits for a fresh process, as ratios to importing JAX, numba and NumPyro.

Every command runs once to fill the caches on disk, then a few times in turn with the measure. Times
are those of the processes on their cores (user and system), so that a busy machine enters little;
the least of each counts. Python keeps its bytecode too, as it does wherever a package is installed,
even if this shell forbids it.
Run: python benchmarks/waiting.py [--rounds 3]
"""

import argparse
import os
import subprocess
import sys

MEASURE = "import jax, numba, numpyro"
CHOOSE = (
    "import irsppl; "
    "irsppl.choose(irsppl.Bandit(irsppl.BetaBernoulli([1., 1., 1.], [1., 1., 1.]), 60), "
    "'irs.index', 0)"
)
BOUND = ["-m", "irsppl", "bound", "--arms", "beta(1,1)x3", "--horizon", "60"]

# name: (arguments of Python, most times the measure that is wanted)
CASES = {
    "irsppl --help": (["-m", "irsppl", "--help"], 0.2),
    "import irsppl": (["-c", "import irsppl"], 1.1),
    "first choose": (["-c", CHOOSE], 1.5),
    "irsppl bound, three Beta arms": (BOUND, 2.0),
}

ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


def seconds(arguments):
    before = os.times()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env=ENVIRONMENT)
    after = os.times()
    return (
        after.children_user + after.children_system - before.children_user - before.children_system
    )


def main(rounds):
    every = {"measure": ["-c", MEASURE], **{name: case[0] for name, case in CASES.items()}}
    for arguments in every.values():
        seconds(arguments)
    least = dict.fromkeys(every, float("inf"))
    for _ in range(rounds):
        for name, arguments in every.items():
            least[name] = min(least[name], seconds(arguments))
    print(f"{MEASURE}: {least['measure']:.2f} s of processor time")
    for name, (_, wanted) in CASES.items():
        print(f"{name:32}{least[name] / least['measure']:6.2f}x   wanted {wanted}x")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    main(parser.parse_args().rounds)
