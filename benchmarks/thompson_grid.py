"""Thompson sampling with clouds that move against Thompson sampling with a dense grid.

Student-t arms, location and scale unknown, K = 3, T = 100, the same futures for both. The grid has
200 locations and 36 scales; it plays each future three times, so that its own chance enters little.
Run: python benchmarks/thompson_grid.py [--paths 8000]
"""

import argparse
import math

import jax
import numpy as np
from engine import HORIZON, NUM_ARMS, student
from numba import njit

import irsppl
from irsppl.futures import draw_outcomes

PLACES, SCALES = np.linspace(-4.2, 4.2, 200), np.linspace(-2.75, 0.75, 36)  # of logarithms


@njit(nogil=True, fastmath=True)
def grid_regrets(prior, place, log_scale, step, rewards, means, seed):
    np.random.seed(seed)  # noqa: NPY002 (numba has no other generator)
    paths, arms, periods = rewards.shape
    out = np.zeros(paths)
    logs, sums = np.empty((arms, prior.size)), np.empty((arms, prior.size))
    inverse = np.exp(-log_scale)
    for s in range(paths):
        pulls = np.zeros(arms, np.int64)
        for a in range(arms):
            logs[a] = prior
            sums[a] = np.cumsum(np.exp(prior - prior.max()))
        for _ in range(periods):
            arm, best = 0, -np.inf
            for a in range(arms):
                level = np.random.random() * sums[a, -1]  # noqa: NPY002
                at = min(np.searchsorted(sums[a], level, side="right"), prior.size - 1)
                drawn = place[at] + (np.random.random() - 0.5) * step  # noqa: NPY002
                if drawn > best:
                    arm, best = a, drawn
            out[s] += means[s].max() - means[s, arm]
            reward = rewards[s, arm, pulls[arm]]
            pulls[arm] += 1
            top = -np.inf
            for g in range(prior.size):
                z = (reward - place[g]) * inverse[g]
                logs[arm, g] -= 2.5 * math.log1p(0.25 * z * z) + log_scale[g]
                top = max(top, logs[arm, g])
            total = 0.0
            for g in range(prior.size):
                total += math.exp(logs[arm, g] - top)
                sums[arm, g] = total
    return out


def main(paths):
    bandit = irsppl.Bandit(irsppl.from_numpyro(student, NUM_ARMS), HORIZON)
    clouds = irsppl.simulate(bandit, ["ts"], 78, paths).regret.values[0]
    parts = [
        jax.tree.map(np.asarray, draw_outcomes(bandit, jax.random.key(78), s, min(500, paths - s)))
        for s in range(0, paths, 500)
    ]
    rewards = np.concatenate([part.rewards for part in parts]).astype(float)
    means = np.concatenate([part.means for part in parts]).astype(float)
    place, log_scale = (x.ravel() for x in np.meshgrid(PLACES, SCALES, indexing="ij"))
    prior = -0.5 * place**2 - 0.5 * ((log_scale + 1.0) / 0.5) ** 2
    step = PLACES[1] - PLACES[0]
    given = (prior, place, log_scale, step, rewards, means)
    grid = np.mean([grid_regrets(*given, seed) for seed in range(3)], axis=0)
    apart = clouds - grid
    print(
        f"regret of ts, {paths} futures: dense grid {grid.mean():.3f}, clouds {clouds.mean():.3f}"
    )
    print(f"clouds less grid: {apart.mean():.3f} ({apart.std() / math.sqrt(paths):.3f})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paths", type=int, default=8000)
    main(parser.parse_args().paths)
