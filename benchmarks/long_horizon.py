"""What long horizons cost: time per decision and per path against T, and the bound against T0.

Times are the best of several runs taken in turn, and are printed as ratios too, because machines
are noisy. Run: python benchmarks/long_horizon.py; --figure also draws docs/figures/long_horizon.png
from the bound at T = 1,000; --paths plays whole paths of 100,000 periods,
--bounds computes bounds there.
"""

import argparse
import functools
import pathlib
import time

import jax
import numpy as np

import irsppl
from irsppl import engine
from irsppl._running import RunningMean
from irsppl.bounds import inner_values
from irsppl.inner.cpu.rng import streams
from irsppl.penalties import find_penalty
from irsppl.policies import find_policy

HORIZONS = (1000, 10_000, 100_000)
COLOURS = ["#0072B2", "#E69F00", "#009E73", "#D55E00"]  # safe for colour-blind readers


def bandit(horizon, num_arms=10):
    return irsppl.Bandit(irsppl.BetaBernoulli(np.ones(num_arms), np.ones(num_arms)), horizon)


def best_of(runs, repeats=7):
    """Least seconds of each of several functions, run in turn."""
    best = [np.inf] * len(runs)
    for _ in range(repeats):
        for i, run in enumerate(runs):
            start = time.perf_counter()
            run()
            best[i] = min(best[i], time.perf_counter() - start)
    return best


def kernel(policy, horizon):
    """The compiled decision of a policy from the prior, with `horizon` periods left."""
    return engine.kernel(find_policy(policy), bandit(horizon)).decisions


def pull(instance):
    jax.block_until_ready(instance.pull(0, 1).pulled)


def decisions():
    print("microseconds per decision, compiled kernel, ten Bernoulli arms")
    print(f"{'policy':22}" + "".join(f"{f'T = {t:,}':>14}" for t in HORIZONS) + f"{'ratio':>8}")
    policies = {
        "ts": ("ts", 2000),
        "irs.fh": ("irs.fh", 2000),
        "irs.mix, T0 = 200": (irsppl.Mix(), 500),
        "index, lookahead 200": (irsppl.Index(lookahead=200), 200),
    }
    for label, (policy, count) in policies.items():
        seeds = streams((0, 1), 2, 0, count)
        runs = [functools.partial(kernel(policy, t), seeds) for t in HORIZONS]
        each = [seconds / count * 1e6 for seconds in best_of(runs)]
        print(f"{label:22}" + "".join(f"{x:14.2f}" for x in each) + f"{each[-1] / each[0]:8.2f}")


def choices():
    print("\nmilliseconds per irsppl.choose, after the first (which compiles)")
    ends = (HORIZONS[0], HORIZONS[-1])
    print(f"{'policy':22}" + "".join(f"{f'T = {t:,}':>14}" for t in ends) + f"{'ratio':>8}")
    for label, policy in {
        "ts": "ts",
        "irs.fh": "irs.fh",
        "irs.mix, T0 = 200": find_policy(irsppl.Mix()),
        "index, lookahead 200": irsppl.Index(lookahead=200),
    }.items():
        instances = [bandit(t) for t in ends]
        runs = [functools.partial(irsppl.choose, b, policy) for b in instances]
        each = [seconds * 1e3 for seconds in best_of(runs, 30)]
        print(f"{label:22}" + "".join(f"{x:14.3f}" for x in each) + f"{each[1] / each[0]:8.2f}")
    runs = [functools.partial(pull, bandit(t)) for t in ends]
    each = [seconds * 1e3 for seconds in best_of(runs, 30)]
    print(f"{'bandit.pull':22}" + "".join(f"{x:14.3f}" for x in each) + f"{each[1] / each[0]:8.2f}")


def paths(horizon=100_000, count=40):
    print(
        f"\n{count} paths of {horizon:,} periods: seconds per path on one core, policy only; regret"
    )
    rng = np.random.default_rng(0)
    means = rng.random((count, 10))
    rewards = (rng.random((count, 10, horizon)) < means[:, :, None]).astype(np.float32)
    instance = bandit(horizon)
    for label, policy in {
        "ts": find_policy("ts"),
        "irs.fh": find_policy("irs.fh"),
        "irs.mix, T0 = 200": find_policy(irsppl.Mix()),
        "index, lookahead 200": irsppl.Index(lookahead=200),
        "index, lookahead 20,000": irsppl.Index(lookahead=20_000),
    }.items():
        play = engine.kernel(policy, instance).paths
        play(rewards[:1], streams((0, 1), 2, 0, 1))
        start = time.perf_counter()
        arms = play(rewards, streams((0, 1), 2, 0, count))
        took = (time.perf_counter() - start) / count
        earned = np.take_along_axis(means, arms.astype(int), axis=1).sum(axis=1)
        regret = horizon * means.max(axis=1) - earned
        error = regret.std(ddof=1) / np.sqrt(count)
        print(
            f"{label:24}{took:8.2f} s   regret {regret.mean():.0f} (s.e. {error:.0f}), "
            f"median {np.median(regret):.0f}, worst {regret.max():.0f}"
        )


def bounds(horizon=1000, count=2000):
    """[(T0, regret bound, standard error, seconds per inner problem)], ten Bernoulli arms."""
    instance = bandit(horizon)
    sizes = [10, 20, 50, 100, 200, 500, 1000, 2000, 10_000]
    penalties = [irsppl.Mix(T0=T0) for T0 in sizes]
    found = irsppl.bound(instance, penalties, num_samples=count, progress=False)
    rng = np.random.default_rng(1)
    means = rng.random((100, 10)).astype(np.float32)
    rewards = (rng.random((100, 10, horizon)) < means[:, :, None]).astype(np.float32)
    futures = jax.vmap(irsppl.Outcome)(means, rewards)
    rows = []
    print(f"\nregret bound against T0, ten Bernoulli arms, T = {horizon}, {count} samples")
    for T0, penalty in zip(sizes, penalties, strict=True):
        seconds = best_of([lambda p=penalty: p.values(instance, futures)], 3)[0] / 100
        estimate = found[penalty.label]
        rows.append((T0, estimate.regret_bound, estimate.regret_stderr, seconds))
        print(
            f"  T0 = {T0:6}: {estimate.regret_bound:7.3f} (s.e. {estimate.regret_stderr:.4f})"
            f"{seconds * 1e3:9.3f} ms per inner problem"
        )
    fh = irsppl.bound(instance, "irs.fh").regret_bound
    print(f"  irs.fh, exact: {fh:7.3f}")
    return rows, fh


def long_bounds(horizon=100_000, count=400):
    """Regret bounds at a horizon where the mean of irs.ff is not to be had: other controls do."""
    instance = bandit(horizon)
    penalties = [irsppl.Mix(T0=T0) for T0 in (50, 200, 1000, 5000)]
    controls = {name: find_penalty(name) for name in ("ts", "irs.fh")}
    start = time.perf_counter()
    key = jax.random.key(0)
    values = inner_values(instance, [*penalties, *controls.values()], key, count)
    exact = {name: penalty.exact(instance) for name, penalty in controls.items()}
    columns = [values[name] - exact[name] for name in controls]
    took = time.perf_counter() - start
    print(f"\nregret bounds, ten Bernoulli arms, T = {horizon:,}, {count} futures in {took:.0f} s")
    for penalty in penalties:
        running = RunningMean()
        running.add(values[penalty.label], columns)
        mean, error = running.mean_error()
        print(f"  T0 = {penalty.T0:5}: {exact['ts'] - mean:7.3f} (s.e. {error:.3f})")
    print(f"  irs.fh, exact: {exact['ts'] - exact['irs.fh']:7.3f}")


def figure(out):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows, fh = bounds()
    sizes, regret, error, _ = map(np.array, zip(*rows, strict=True))
    picture, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8))
    left.errorbar(
        sizes, regret, 2 * error, color=COLOURS[0], marker="o", capsize=2, label="irs.mix"
    )
    left.axhline(fh, color=COLOURS[1], linestyle="--", label="irs.fh (exact)")
    left.axhline(regret[-1], color=COLOURS[2], linestyle=":", label="irs.v-zero (T0 = K T)")
    left.set_xscale("log")
    left.set(xlabel="T0", ylabel="regret bound (higher is tighter)", title="T = 1,000, ten arms")
    left.legend(frameon=False, loc="upper left", bbox_to_anchor=(0, 0.9), fontsize=9)
    horizons = [300, 1000, 3000, 10_000, 30_000, 100_000]
    for policy, label, marker, colour, last, count in (
        ("irs.v-zero", "irs.v-zero", "D", COLOURS[2], 3000, 4),
        (irsppl.Index(lookahead=200), "irs.index, lookahead 200", "^", COLOURS[3], 10**6, 50),
        (irsppl.Mix(), "irs.mix, T0 = 200", "o", COLOURS[0], 10**6, 200),
        ("irs.fh", "irs.fh", "s", COLOURS[1], 10**6, 1000),
    ):
        shown = [t for t in horizons if t <= last]
        seeds = streams((0, 1), 2, 0, count)
        runs = [functools.partial(kernel(policy, t), seeds) for t in shown]
        each = [seconds / count * 1e6 for seconds in best_of(runs, 5)]
        right.loglog(shown, each, marker=marker, color=colour, label=label)
    right.set(xlabel="periods left", ylabel="time per decision, µs", title="compiled, one core")
    right.legend(frameon=False, fontsize=9)
    for axes in (left, right):
        axes.grid(alpha=0.3)
    picture.tight_layout()
    pathlib.Path(out).parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(out, dpi=130, bbox_inches="tight")
    print(f"figure: {out}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paths", action="store_true")
    parser.add_argument("--bounds", action="store_true")
    parser.add_argument("--figure", action="store_true")
    docs = pathlib.Path(__file__).parent.parent / "docs"
    parser.add_argument("--out", default=str(docs / "figures" / "long_horizon.png"))
    options = parser.parse_args()
    decisions()
    choices()
    if options.paths:
        paths()
    if options.bounds:
        long_bounds()
    if options.figure:
        figure(options.out)
