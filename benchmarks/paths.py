"""Time per simulated path: compiled kernels against careful NumPy, one core against two.

Everything is a ratio of two measurements taken in one run, because machines are noisy.
Run: python benchmarks/paths.py [--num-arms 10 --horizon 500]; --growth also measures and plots how
the cost grows with T and K (docs/growth.png).
"""

import argparse
import pathlib
import sys
import time

import numpy as np

import irsppl

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from tests.oracles import numpy_paths

TARGETS = {"ts": 4, "irs.fh": 4, "irs.v-zero": 40, "irs.index": 300}


def seconds_per_path(policy, num_arms, horizon, paths, workers=1):
    """Our time per path, outcomes drawn and results accounted for; the better of two runs."""
    ones = np.ones(num_arms)
    bandit = irsppl.Bandit(irsppl.BetaBernoulli(ones, ones), horizon)

    def run(count, key):
        start = time.perf_counter()
        irsppl.simulate(bandit, [policy], key, count, workers=workers, progress=False)
        return time.perf_counter() - start

    run(paths, 9)  # compile, at the very shapes that are timed
    return min(run(paths, key) for key in (0, 1)) / paths


def kernel_seconds_per_path(policy, num_arms, horizon, paths):
    """The policy alone, on given outcomes: what the NumPy time per path measures too."""
    from irsppl import engine
    from irsppl.inner.cpu.rng import streams
    from irsppl.policies import find_policy

    ones = np.ones(num_arms)
    bandit = irsppl.Bandit(irsppl.BetaBernoulli(ones, ones), horizon)
    rng = np.random.default_rng(0)
    means = rng.random((paths, num_arms, 1))
    rewards = (rng.random((paths, num_arms, horizon)) < means).astype(np.float32)
    kernel = engine.kernel(find_policy(policy), bandit).paths
    kernel(rewards[:2], streams((0, 1), 2, 0, 2))
    best = np.inf
    for repeat in range(2):
        start = time.perf_counter()
        kernel(rewards, streams((0, 1), 2 + repeat, 0, paths))
        best = min(best, time.perf_counter() - start)
    return best / paths


def against_numpy(num_arms, horizon):
    print(f"K = {num_arms}, T = {horizon}, Bernoulli arms, one core; time per path")
    head = f"{'policy':26}{'NumPy':>12}{'kernel':>12}{'ratio':>9}{'target':>8}{'simulate':>12}"
    print(head + f"{'ratio':>9}{'two cores':>11}")
    counts = {"ts": 8000, "irs.fh": 8000, "irs.v-zero": 300, "irs.index": 4000}
    for rule in numpy_paths.RULES:
        policy = rule.split(",")[0]
        many = policy in ("ts", "irs.fh")
        slow = numpy_paths.time_per_path(
            rule, num_arms=num_arms, horizon=horizon, paths=10 if many else 2
        )
        fast = kernel_seconds_per_path(policy, num_arms, horizon, counts[policy])
        one = seconds_per_path(policy, num_arms, horizon, counts[policy], workers=1)
        two = seconds_per_path(policy, num_arms, horizon, 2 * counts[policy], workers=2)
        print(
            f"{rule:26}{slow * 1e3:9.2f} ms{fast * 1e3:9.3f} ms{slow / fast:8.1f}x"
            f"{TARGETS[policy]:7d}x{one * 1e3:9.3f} ms{slow / one:8.1f}x{one / two:10.2f}x"
        )


def growth(out):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    horizons, arms = [50, 100, 200, 400, 800], [2, 5, 10, 20, 40]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True)
    print(
        "\ngrowth of the time per path (kernel, one core): exponent of T at K = 10, of K at T = 200"
    )
    markers = dict(zip(TARGETS, "osD^", strict=True))
    colours = ["#0072B2", "#E69F00", "#009E73", "#D55E00"]  # safe for colour-blind readers
    plt.rcParams["axes.prop_cycle"] = plt.cycler(color=colours)
    for axes in (left, right):
        axes.set_prop_cycle(color=colours)
    for policy in TARGETS:
        count = 20 if policy == "irs.v-zero" else 200
        by_time = [kernel_seconds_per_path(policy, 10, t, count) for t in horizons]
        by_arms = [kernel_seconds_per_path(policy, k, 200, count) for k in arms]
        slopes = [
            np.polyfit(np.log(x), np.log(y), 1)[0]
            for x, y in ((horizons, by_time), (arms, by_arms))
        ]
        print(f"  {policy:12} T^{slopes[0]:.2f}   K^{slopes[1]:.2f}")
        left.loglog(horizons, np.multiply(by_time, 1e3), marker=markers[policy], label=policy)
        right.loglog(arms, np.multiply(by_arms, 1e3), marker=markers[policy], label=policy)
    for axes, ticks in ((left, horizons), (right, arms)):
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.set_xticks([], minor=True)
        axes.grid(alpha=0.3)
    left.set(xlabel="horizon T (10 arms)", ylabel="time per path, ms")
    right.set(xlabel="number of arms K (horizon 200)")
    right.legend(frameon=False, bbox_to_anchor=(1.02, 1), loc="upper left")
    figure.tight_layout()
    figure.savefig(out, dpi=130, bbox_inches="tight")
    print(f"figure: {out}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-arms", type=int, default=10)
    parser.add_argument("--horizon", type=int, default=500)
    parser.add_argument("--growth", action="store_true")
    docs = pathlib.Path(__file__).parent.parent / "docs"
    parser.add_argument("--out", default=str(docs / "growth.png"))
    options = parser.parse_args()
    against_numpy(options.num_arms, options.horizon)
    if options.growth:
        growth(options.out)
