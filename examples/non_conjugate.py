"""A bandit whose arms have no conjugate form, end to end: model, belief, policies, certificate.

A newspaper tries three headlines for 30 readers. Minutes read are Gamma with unknown mean and
unknown shape, written as an ordinary NumPyro model. Nobody has solved such a bandit exactly, but
the certificate says how far from the best possible a policy is at most.
Run: python examples/non_conjugate.py [--out figures]
"""

import argparse
import pathlib
import tempfile

import numpy as np
import numpyro
import numpyro.distributions as dist

import irsppl
from irsppl import plots

HEADLINES = ["question", "number", "quotation"]


def headline(reward=None):
    minutes = numpyro.sample("minutes", dist.LogNormal(0.7, 0.4))
    shape = numpyro.sample("shape", dist.LogNormal(0.3, 0.5))
    numpyro.sample("reward", dist.Gamma(shape, shape / minutes), obs=reward)


def main(
    horizon: int = 30, replications: int = 500, samples: int = 500, out: str | None = None
) -> None:
    belief = irsppl.from_numpyro(headline, num_arms=3, num_particles=256)
    print(belief)
    bandit = irsppl.Bandit(belief, horizon, labels=HEADLINES)

    data = irsppl.simulate(
        bandit, ["random", "greedy", "ts", "irs.fh"], num_replications=replications
    )
    print("\nMinutes read with each policy, and regret against knowing the best headline:\n")
    print(irsppl.summary(data).round(2).to_string())

    # Every sampled future brings its own set of particles with its truth among them, so these are
    # bounds for the model as written, whatever the number of particles.
    bounds = irsppl.bound(bandit, ["irs.fh", "irs.ff"], num_samples=samples)
    print(f"\nWhat no policy can beat:\n{bounds}\n")
    print(
        irsppl.certify(
            bandit,
            "irs.fh",
            bounds.tightest.penalty,
            num_replications=replications,
            num_samples=samples,
        )
    )

    # What is believed after some readers, and where it may go from there.
    rng = np.random.default_rng(2)
    arms = [0, 1, 2] * 3 + [0, 1] * 3 + [0] * 9
    truth = np.array([2.6, 2.0, 1.3])
    rewards = rng.gamma(1.5, truth[arms] / 1.5)
    for arm, reward in zip(arms, rewards, strict=True):
        belief = belief.update(arm, reward)
    print(f"\nAfter {len(arms)} readers:")
    for name, mean, error, true in zip(
        HEADLINES, belief.predictive_mean(), belief.mean_error(), truth, strict=True
    ):
        print(
            f"  {name:10} is believed to hold readers for {mean:.2f} minutes "
            f"(particle error {error:.3f}), in truth {true:.2f}"
        )

    folder = pathlib.Path(out or tempfile.mkdtemp(prefix="irsppl-"))
    folder.mkdir(parents=True, exist_ok=True)
    figures = {
        "regret.png": plots.plot_regret(data, bounds).figure,
        "belief.png": plots.plot_belief(
            bandit.belief, arms, rewards, horizon=horizon, labels=HEADLINES
        )[0].figure,
    }
    for name, figure in figures.items():
        figure.savefig(folder / name, dpi=130, bbox_inches="tight")
    print(f"\nFigures: {folder / 'regret.png'}, {folder / 'belief.png'}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--horizon", type=int, default=30)
    parser.add_argument("--replications", type=int, default=500)
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--out", default=None)
    main(**vars(parser.parse_args()))
