"""Do 95 % intervals hold what they promise? Bounds and values whose truth is known, many seeds.

    python benchmarks/intervals.py [--seeds 50]

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


def covers(value, stderr, truth):
    return bool(abs(value - truth) <= stats.norm.ppf(0.975) * stderr)


def bounds(name, seeds, samples=500):
    """{penalty: (how often the interval holds the exact bound, exact bounds below V*)}."""
    alpha, beta, horizon = CASES[name]
    bandit = irsppl.Bandit(irsppl.BetaBernoulli(alpha, beta), horizon)
    batch, weights = every_outcome(alpha, beta, horizon)
    optimum = irsppl.bound(bandit, "ideal").value
    found = {}
    for penalty in ("irs.v-zero", "irs.v-solo", irsppl.VFit("quick")):
        penalty = find_penalty(penalty)
        hits = below = 0
        for seed in range(seeds):
            # What the pilot of this seed settles, estimated, and summed over every outcome.
            known = _controls(bandit, [penalty])
            frozen = fit_penalty(bandit, penalty, jax.random.key(seed), known)
            estimate = irsppl.bound(bandit, frozen, key=seed, num_samples=samples)
            truth = float(frozen.values(bandit, batch) @ weights)
            hits += covers(estimate.value, estimate.stderr, truth)
            below += truth < optimum - 1e-9
        found[penalty.label] = hits, below
    return found


def values(seeds, paths=400):
    """How often the interval of the steadied value of `opt` holds V*, and that of a certificate."""
    bandit = irsppl.Bandit(irsppl.BetaBernoulli([1.0, 1.0], [1.0, 1.0]), 20)
    optimum, best = (irsppl.bound(bandit, name).value for name in ("ideal", "ts"))
    hits = raw = promised = 0
    for seed in range(seeds):
        data = irsppl.simulate(bandit, "opt", key=seed, num_replications=paths, progress=False)
        for kind in ("regret", "steadied_regret"):
            x = data[kind].values[0]
            covered = covers(x.mean(), x.std(ddof=1) / np.sqrt(len(x)), best - optimum)
            hits, raw = (hits, raw + covered) if kind == "regret" else (hits + covered, raw)
        sizes = {"num_replications": paths, "num_samples": 500}
        certificate = irsppl.certify(bandit, "opt", key=seed, progress=False, **sizes)
        promised += certificate.interval()[0] <= 1.0  # opt earns all of the optimum
    return {"value of opt": raw, "the same, steadied": hits, "certificate of opt": promised}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=50)
    count = parser.parse_args().seeds
    few = stats.binom.ppf(0.001, count, 0.95)
    print(f"of {count} intervals; fewer than {few:.0f} would happen once in a thousand")
    for case in CASES:
        for penalty, (hits, below) in bounds(case, count).items():
            told = f"{hits} hold the exact bound, {below} exact bounds below V*"
            print(f"{case:20s} {penalty:20s} {told}", flush=True)
    for what, hits in values(count).items():
        print(f"{'two arms, T = 20':20s} {what:20s} {hits} hold", flush=True)
