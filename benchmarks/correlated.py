"""Correlated arms: time per decision, and how bounds move as the arms' correlation grows.

Times are ratios of measurements taken in one run, because machines are noisy.
Run: python benchmarks/correlated.py; --figure FILE also computes and plots the bounds of
docs/correlated.md; --table prints those of its instance.
"""

import argparse
import time

import equinox as eqx
import jax
import numpy as np

import irsppl
from irsppl.policies import find_policy

PENALTIES = ["irs.v-solo", "irs.ff", "irs.v-zero-separable", "irs.fh", "ts", "irs.v-zero"]
# Three arms that mostly share one weight, the first of them noisy.
STEERED = irsppl.LinearGaussian(
    features=[[1.5, 1.0], [1.5, 0.5], [1.0, 0.0]],
    mean=[0.0, 0.0],
    cov=[[1.0, 0.0], [0.0, 1.0]],
    noise_sd=[3.0, 1.0, 1.0],
)


def random_arms(num_arms, dim):
    rng = np.random.default_rng(4)
    half = rng.normal(size=(dim, dim))
    features, noise = rng.normal(size=(num_arms, dim)), rng.uniform(0.5, 2.0, num_arms)
    return irsppl.LinearGaussian(features, rng.normal(size=dim), half @ half.T + np.eye(dim), noise)


@eqx.filter_jit
def decide(policy, bandit, keys):
    return jax.lax.map(lambda key: policy(key, bandit), keys)


def seconds_per_decision(belief, name, horizon, decisions=16):
    """The best of seven runs of so many decisions in one compiled loop."""
    bandit, policy = irsppl.Bandit(belief, horizon), find_policy(name)
    keys = jax.random.split(jax.random.key(0), decisions)
    jax.block_until_ready(decide(policy, bandit, keys))
    best = np.inf
    for _ in range(7):
        start = time.perf_counter()
        jax.block_until_ready(decide(policy, bandit, keys))
        best = min(best, time.perf_counter() - start)
    return best / decisions


def times():
    print(f"{'K':>4}{'d':>4}{'T':>5}  {'policy':22}{'ms per decision':>16}{'ratio':>8}")
    for num_arms, dim, horizon in ((50, 10, 200), (300, 10, 100)):
        ones = np.ones(num_arms)
        alone = irsppl.NormalNormal(0 * ones, ones, ones)
        base = seconds_per_decision(alone, "irs.v-zero", horizon)
        name = "irs.v-zero, unrelated"
        print(f"{num_arms:4}{'':>4}{horizon:5}  {name:22}{1e3 * base:16.3f}{1:8.2f}")
        joint = random_arms(num_arms, dim)
        for name in ("irs.v-zero-separable", "irs.fh", "ts"):
            own = seconds_per_decision(joint, name, horizon)
            row = f"{num_arms:4}{dim:4}{horizon:5}  {name:22}{1e3 * own:16.3f}{own / base:8.2f}"
            print(row)


def table(samples):
    bandit = irsppl.Bandit(STEERED, horizon=20)
    print("K = 3, d = 2, T = 20")
    for name in PENALTIES:
        found = irsppl.bound(bandit, name, num_samples=samples)
        print(f"  {name:22}{found.value:9.4f}  s.e. {found.stderr:.4f}")


def equally_correlated(correlation, num_arms=3, noise_sd=1.0):
    """One shared weight and one for each arm; every mean has variance 1."""
    shared = np.full((num_arms, 1), np.sqrt(correlation))
    features = np.hstack([shared, np.sqrt(1 - correlation) * np.eye(num_arms)])
    dim = num_arms + 1
    return irsppl.LinearGaussian(features, np.zeros(dim), np.eye(dim), noise_sd)


def figure(out, samples, horizon=20):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    correlations = [0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95]
    rows = {name: [] for name in PENALTIES}
    for correlation in correlations:
        bandit = irsppl.Bandit(equally_correlated(correlation), horizon)
        for name in PENALTIES:
            found = irsppl.bound(bandit, name, num_samples=samples)
            rows[name].append((found.value, found.stderr))
        told = ", ".join(
            f"{name} {row[-1][0]:.3f} ({row[-1][1]:.3f})" for name, row in rows.items()
        )
        print(f"correlation {correlation}: {told}", flush=True)
    _, axes = plt.subplots(figsize=(6.4, 4))
    base = np.array([value for value, _ in rows["ts"]])
    colours = ["#CC79A7", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#E69F00"]
    for (name, row), colour, marker in zip(rows.items(), colours, "X^Dosv", strict=True):
        value, error = np.array(row).T
        axes.errorbar(
            correlations, value / base, 2 * error / base, color=colour, marker=marker, label=name
        )
    axes.set(xlabel="correlation of the arms' means", ylabel="bound / bound of ts")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    axes.figure.tight_layout()
    axes.figure.savefig(out, dpi=130)
    print(f"figure: {out}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=4000)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--figure")
    options = parser.parse_args()
    if not options.figure:
        times()
    if options.table:
        table(options.samples)
    if options.figure:
        figure(options.figure, options.samples)
