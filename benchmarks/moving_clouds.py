"""What moving particles is worth in a simulation: regret on the same futures, paired.

Student-t arms, location and scale unknown, K = 3, T = 100: clouds only reweighted, of 1,024 and of
4,096 points, and clouds of 1,024 that are moved. Differences are to the first of them.
Run: python benchmarks/moving_clouds.py [--paths 1000] [--policies ts,irs.index]
"""

import argparse
import time

import jax
import numpy as np
from engine import HORIZON, NUM_ARMS, student

import irsppl
from irsppl import engine
from irsppl.futures import draw_outcomes
from irsppl.inner.cpu.rng import streams
from irsppl.policies import find_policy
from irsppl.policies.paths import watched

CLOUDS = {"1,024 reweighted": (1024, False), "4,096 reweighted": (4096, False)}
CLOUDS["1,024 moved"] = (1024, True)


def bandit_of(points, moving):
    belief = irsppl.from_numpyro(student, num_arms=NUM_ARMS, num_particles=points)
    return irsppl.Bandit(belief if moving else belief.for_simulation(), HORIZON).trimmed(HORIZON)


def main(paths, policies):
    futures = draw_outcomes(bandit_of(1024, True), jax.random.key(5), 0, paths)
    rewards, means = np.asarray(futures.rewards), np.asarray(futures.means, np.float64)
    seeds = streams((0, 1), 2, 0, paths)
    for policy in policies:
        first = None
        for name, (points, moving) in CLOUDS.items():
            bandit = bandit_of(points, moving)
            kernel = engine.kernel(find_policy(policy), bandit)
            kernel.played(rewards[:2], seeds[:2])
            start = time.process_time()
            played = kernel.played(rewards, seeds)
            each = 1e3 * (time.process_time() - start) / paths
            earned = np.take_along_axis(means, played.arms.astype(int), axis=1).sum(axis=1)
            regret = means.max(axis=1) * HORIZON - earned
            first = regret if first is None else first
            gap = regret - first
            root = np.sqrt(paths)
            if played.ess is None:  # as `simulate` does it
                played = watched(bandit, futures, played.arms)
            print(
                f"{policy:10} {name:17} regret {regret.mean():6.2f} ({regret.std() / root:.2f})  "
                f"difference {gap.mean():6.2f} ({gap.std() / root:.2f})  least effective size: "
                f"worst {played.ess.min():.0f}, median {np.median(played.ess):.0f}; "
                f"{each:.1f} ms per path",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paths", type=int, default=1000)
    parser.add_argument("--policies", default="ts,irs.index")
    options = parser.parse_args()
    main(options.paths, options.policies.split(","))
