"""Judge policies of your own: functions `policy(key, bandit) -> arm`, and objects that learn.

The first tries every arm in turn for a share of the horizon and then commits to the best; it is
written for JAX and runs compiled. The second is plain Python and plays one decision at a time. The
third is an object that pulls and is told of rewards, as other libraries have them.
Run: python examples/own_policy.py
"""

import argparse

import jax.numpy as jnp
import numpy as np

import irsppl
from irsppl.policies import from_agent


def explore_then_commit(key, bandit):
    exploring = bandit.period < bandit.horizon // 5
    return jnp.where(
        exploring,
        bandit.period % bandit.num_arms,
        jnp.argmax(bandit.belief.predictive_mean()),
    )


def stay_after_success(key, bandit):
    """Plain Python: an `if`, NumPy, whatever you like."""
    means = np.asarray(bandit.belief.predictive_mean())
    if int(bandit.period) < bandit.num_arms:
        return int(bandit.period)
    return int(np.argmax(means + 1 / (1 + np.asarray(bandit.counts))))


class EpsilonAgent:
    """An agent that keeps its own averages; it never sees the bandit."""

    def __init__(self):
        self.rng = np.random.default_rng()
        self.pulls, self.sums = np.zeros(3), np.zeros(3)

    def pull(self):
        if self.rng.random() < 0.1:
            return self.rng.integers(3)
        return np.argmax(self.sums / np.maximum(self.pulls, 1))

    def update(self, arm, reward):
        self.pulls[arm] += 1
        self.sums[arm] += reward


def main(replications: int = 4000) -> None:
    belief = irsppl.NormalNormal(mean=[0, 0, 0], sd=[1, 1, 1], noise_sd=[0.5, 1, 2])
    bandit = irsppl.Bandit(belief, horizon=50)
    data = irsppl.simulate(
        bandit, [explore_then_commit, "ts", "irs.index"], num_replications=replications
    )
    print(irsppl.summary(data).round(3).to_string())
    few = irsppl.simulate(
        bandit, [stay_after_success, from_agent(EpsilonAgent)], num_replications=replications // 20
    )
    print(irsppl.summary(few).round(3).to_string())
    print()
    print(
        irsppl.certify(
            bandit, explore_then_commit, num_replications=replications, num_samples=replications
        )
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=4000)
    main(**vars(parser.parse_args()))
