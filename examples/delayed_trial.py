"""A trial whose outcomes come late: what waiting costs, and what planning for it gives back.

One patient a week, three treatments, and an outcome that is known only some weeks later. For each
delay: what Thompson sampling and IRS policies earn, and what no policy could beat. Run:
python examples/delayed_trial.py
"""

import argparse
import pathlib

import matplotlib.pyplot as plt

import irsppl

POLICIES = ("ts", "irs.fh", "irs.v-zero-separable")
COLOURS = ("#0072B2", "#D55E00", "#009E73")


def main(replications: int = 2000, horizon: int = 50, out: str = "results") -> None:
    belief = irsppl.BetaBernoulli(alpha=[2, 1, 1], beta=[2, 1, 1])
    delays = [0, 5, 10, 20] if horizon >= 20 else [0, 2]
    regrets, errors, bounds = {p: [] for p in POLICIES}, {p: [] for p in POLICIES}, []
    for delay in delays:
        bandit = irsppl.Bandit(
            belief, horizon, delay=delay, labels=["usual care", "drug A", "drug B"]
        )
        data = irsppl.simulate(bandit, list(POLICIES), num_replications=replications)
        best = irsppl.bound(bandit, ["irs.fh", "irs.ff"], num_samples=replications).tightest
        bounds.append(best.regret_bound)
        print(f"outcomes known {delay} weeks late: no policy cures more than {best.value:.3f}")
        table = irsppl.summary(data)
        for policy in POLICIES:
            regrets[policy].append(float(table.loc[policy, "regret"]))
            errors[policy].append(float(table.loc[policy, "regret s.e."]))
            value = best.value + best.regret_bound - regrets[policy][-1]
            print(
                f"  {policy:22} {value:7.3f} (s.e. {errors[policy][-1]:.3f}), "
                f"{value / best.value:.1%} of that"
            )

    # In mid-trial: two patients are waiting for their outcome, and planning knows when it comes.
    bandit = irsppl.Bandit(belief, horizon, delay=delays[-1]).pull(0).pull(1)
    shares = irsppl.action_probabilities(bandit, "irs.fh", key=0, num_samples=200)
    print(f"\nafter one pending patient on each of the first two arms, irs.fh plays {shares}")

    figure, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
    ax.plot(delays, bounds, "k--", label="no policy loses less (irs.ff)")
    for i, (policy, colour) in enumerate(zip(POLICIES, COLOURS, strict=True)):
        ax.errorbar(
            [d + 0.2 * (i - 1) for d in delays],  # side by side
            regrets[policy],
            [2 * e for e in errors[policy]],
            color=colour,
            marker="o",
            capsize=3,
            label=policy,
        )
    ax.set_xticks(delays)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("delay of an outcome (weeks)")
    ax.set_ylabel(f"cures lost among {horizon} patients\n(regret, mean and 2 s.e.)")
    ax.legend(frameon=False)
    folder = pathlib.Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "delays.png", dpi=150)
    print(f"Figure: {folder / 'delays.png'}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=2000)
    parser.add_argument("--horizon", type=int, default=50)
    parser.add_argument("--out", default="results")
    main(**vars(parser.parse_args()))
