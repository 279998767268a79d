"""Do 95 % intervals hold what they promise? Bounds and values whose truth is known, many seeds.

    python benchmarks/intervals.py [--seeds 1000]

Two and three Bernoulli arms so small that every outcome can be listed: the exact bound of a penalty
with frozen coefficients is a sum over all of them. The value of `opt` is V*. A certificate's lower
limit must lie below the true share with probability 97.5 % at least.
"""

from __future__ import annotations

import argparse
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy import special, stats

import irsppl
from irsppl.bounds import _controls, fit_penalty
from irsppl.penalties import find_penalty

CASES = {
    "two arms, T = 6": ([1.0, 2.0], [1.0, 1.0], 6),
    "three arms, T = 4": ([0.5, 2.0, 1.0], [1.5, 1.0, 1.0], 4),
}


def every_outcome(alpha, beta, horizon):
    """All rewards as one batch, and their probabilities."""
    rows = np.array(list(itertools.product([0, 1], repeat=horizon)))
    wins = rows.sum(axis=1)
    chances = [
        np.exp(special.betaln(a + wins, b + horizon - wins) - special.betaln(a, b))
        for a, b in zip(alpha, beta, strict=True)
    ]
    index = list(itertools.product(range(len(rows)), repeat=len(alpha)))
    rewards = np.array([rows[list(i)] for i in index], np.float32)
    weights = [np.prod([c[i] for c, i in zip(chances, each, strict=True)]) for each in index]
    batch = irsppl.Outcome(np.zeros(len(alpha)), rewards[0])
    leaves = (jnp.zeros(rewards.shape[:2]), jnp.asarray(rewards))
    return eqx.tree_at(lambda o: (o.means, o.rewards), batch, leaves), np.array(weights)


def scores(estimates, truths):
    """(estimate - truth) / standard error of each."""
    value, error = np.array(estimates).T
    return (value - np.array(truths)) / error


def bounds(name, penalty, seeds, samples=500):
    """(scores, how many exact bounds lie below V*); the pilot of each seed settles the penalty."""
    alpha, beta, horizon = CASES[name]
    bandit = irsppl.Bandit(irsppl.BetaBernoulli(alpha, beta), horizon)
    batch, weights = every_outcome(alpha, beta, horizon)
    known = _controls(bandit, [penalty])
    found, truths = [], []
    for seed in range(seeds):
        frozen = fit_penalty(bandit, penalty, jax.random.key(seed), known)
        estimate = irsppl.bound(bandit, frozen, key=seed, num_samples=samples)
        found.append((estimate.value, estimate.stderr))
        truths.append(float(frozen.values(bandit, batch) @ weights))
    below = np.sum(np.array(truths) < irsppl.bound(bandit, "ideal").value - 1e-9)
    return scores(found, truths), below


def values(seeds, paths=400):
    """Scores of the regret of `opt`, raw and steadied; how often a certificate's promise holds."""
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1.0, 1.0], [1.0, 1.0]), 20)
    optimum, best = (irsppl.bound(bandit, name).value for name in ("ideal", "ts"))
    found = {"regret": [], "steadied_regret": []}
    promised = 0
    for seed in range(seeds):
        data = irsppl.simulate(bandit, "opt", key=seed, num_replications=paths, progress=False)
        for kind, estimates in found.items():
            x = data[kind].values[0]
            estimates.append((x.mean(), x.std(ddof=1) / np.sqrt(len(x))))
        sizes = {"num_replications": paths, "num_samples": 500}
        certificate = irsppl.certify(
            bandit, "opt", penalty="ideal", key=seed, progress=False, **sizes
        )
        promised += certificate.interval()[0] <= 1.0  # opt earns all of the optimum
    return {kind: scores(each, best - optimum) for kind, each in found.items()}, promised


def told(z):
    share = np.mean(np.abs(z) <= stats.norm.ppf(0.975))
    error = np.sqrt(0.95 * 0.05 / len(z))
    spread = f"scores: mean {z.mean():+.3f}, deviation {z.std(ddof=1):.3f}"
    return f"{share:.1%} of {len(z)} hold (true ones: 95% +- {error:.1%}); {spread}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1000)
    count = parser.parse_args().seeds
    for case in CASES:
        for penalty, seeds in (
            (find_penalty("irs.v-zero"), count),
            (find_penalty("irs.v-solo"), count),
            (irsppl.VFit("quick"), max(count // 5, 2)),  # each seed is a fit
        ):
            z, below = bounds(case, penalty, seeds)
            print(f"{case:18s} {penalty.label:18s} {told(z)}; {below} below V*", flush=True)
    found, promised = values(count)
    for kind, z in found.items():
        print(f"{'two arms, T = 20':18s} opt, {kind:18s} {told(z)}", flush=True)
    print(f"promises of certificates, 97.5% confidence: {promised / count:.1%} hold", flush=True)
