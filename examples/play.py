"""Play a bandit in earnest, one period at a time, with rewards that come late.

A clinic tries two treatments on 40 patients. A patient's outcome is known only after the next two
patients have been treated, so pulls wait as pending until `arrive` brings their reward.
Run: python examples/play.py
"""

import argparse

import numpy as np

import irsppl


def main(patients: int = 40, seed: int = 0) -> None:
    bandit = irsppl.Bandit(
        irsppl.BetaBernoulli(alpha=[6, 2], beta=[4, 2]), horizon=patients, labels=["usual", "new"]
    )
    cures = {"usual": 0.55, "new": 0.75}  # the truth, unknown to the policy
    rng = np.random.default_rng(seed)
    outcomes = []
    while int(bandit.remaining):
        # A key for each period, so that the run can be repeated; without one, decisions are fresh.
        arm = irsppl.choose(bandit, "irs.v-zero", key=int(bandit.period))
        bandit = bandit.pull(arm)
        outcomes.append(int(rng.random() < cures[bandit.arm_labels[arm]]))
        for pull in bandit.pending:
            if pull < int(bandit.period) - 2:
                bandit = bandit.arrive(pull, outcomes[pull])
    print(bandit)
    for label, count, mean in zip(
        bandit.arm_labels, bandit.counts, bandit.belief.predictive_mean(), strict=True
    ):
        print(f"{label:6} treated {int(count):3} patients, believed to cure {float(mean):.0%}")
    print(f"cured {sum(outcomes)} of {patients}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patients", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
