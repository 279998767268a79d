"""What steadied figures cost and bring: time per path, and the standard error of a regret.

Both are ratios of the same simulation with `steadied=True` and `steadied=False`, K = 3, T = 100.
"worth" is how many times as many raw paths give an error as small, over how many times as long
a path takes: above 1, steadying is the faster way to a given error.
Run: taskset -c 0 python benchmarks/steadied.py [--paths 8192]
"""

import argparse
import time

import numpy as np

import irsppl

ONES = np.ones(3)
ARMS = {
    "Beta-Bernoulli": irsppl.BetaBernoulli(ONES, ONES),
    "Gaussian": irsppl.NormalNormal(0 * ONES, ONES, ONES),
    "Gamma-Poisson": irsppl.GammaPoisson(2 * ONES, ONES),
    "Gamma-exponential": irsppl.GammaExponential(3 * ONES, 2 * ONES),
}


def run(bandit, policy, paths, steadied):
    start = time.process_time()
    data = irsppl.simulate(bandit, [policy], 0, paths, workers=1, progress=False, steadied=steadied)
    return time.process_time() - start, data


def main(paths):
    print(f"{'':20}{'policy':12}{'raw, ms':>9}{'steadied':>10}{'time':>7}{'error':>8}{'worth':>8}")
    for name, belief in ARMS.items():
        bandit = irsppl.Bandit(belief, 100)
        for policy in ("ts", "irs.index"):
            run(bandit, policy, paths, True)  # compile
            runs = [[run(bandit, policy, paths, on) for on in (False, True)] for _ in range(3)]
            raw, steadied = (min(pair[on][0] for pair in runs) / paths * 1e3 for on in (0, 1))
            data = runs[0][1][1]
            error = float(data["steadied_regret"].std() / data["regret"].std())
            line = f"{name:20}{policy:12}{raw:9.3f}{steadied:10.3f}{steadied / raw:6.1f}x"
            print(f"{line}{error:8.2f}{raw / steadied / error**2:7.1f}x", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paths", type=int, default=8192)
    main(parser.parse_args().paths)
