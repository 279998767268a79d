"""Judge a policy of your own: a function `policy(key, bandit) -> arm` that JAX can trace.

This one tries every arm in turn for a share of the horizon and then commits to the best.
Run: python examples/own_policy.py
"""

import argparse

import jax.numpy as jnp

import irsppl


def explore_then_commit(key, bandit):
    exploring = bandit.period < bandit.horizon // 5
    return jnp.where(
        exploring,
        bandit.period % bandit.num_arms,
        jnp.argmax(bandit.belief.predictive_mean()),
    )


def main(replications: int = 4000) -> None:
    belief = irsppl.NormalNormal(mean=[0, 0, 0], sd=[1, 1, 1], noise_sd=[0.5, 1, 2])
    bandit = irsppl.Bandit(belief, horizon=50)
    data = irsppl.simulate(
        bandit, [explore_then_commit, "ts", "irs.index"], num_replications=replications
    )
    print(irsppl.summary(data).round(3).to_string())
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
