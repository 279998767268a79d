"""An advertising budget: four channels, each with its own price per impression block.

How to divide a fixed sum among channels whose response is unknown, when the dearer ones may be
worth it. Run: python examples/advertising_budget.py
"""

import argparse
import pathlib

import matplotlib.pyplot as plt

import irsppl

POLICIES = ("random", "ts-ratio", "ts", "irs.fh", "irs.v-zero")


def main(replications: int = 2000, horizon: int = 40, out: str = "results") -> None:
    belief = irsppl.BetaBernoulli(alpha=[1, 2, 2, 3], beta=[3, 3, 2, 2])
    budget = float(horizon)
    bandit = irsppl.Bandit(
        belief,
        costs=[0.5, 1, 1.5, 2.5],
        budget=budget,
        labels=["mail", "search", "video", "fairs"],
    )
    print(bandit)
    data = irsppl.simulate(bandit, list(POLICIES), num_replications=replications)
    table = irsppl.summary(data)
    print(table.round(3).to_string())

    penalties = ["ts", "irs.fh", "irs.ff", "irs.v-zero"]
    bounds = irsppl.bound(bandit, penalties, num_samples=replications)
    print(bounds)
    best = bounds.tightest

    plans = irsppl.action_probabilities(bandit, "irs.v-zero", key=0, num_samples=200)
    shares = ", ".join(f"{n} {p:.0%}" for n, p in zip(bandit.arm_labels, plans, strict=True))
    print(f"first channel by irs.v-zero: {shares}")
    spent = bandit.pull(3, 1.0)
    print(f"after one fair: {spent.budget:g} left, at most {int(spent.remaining)} more purchases")

    figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
    rows = range(len(POLICIES))
    ax.errorbar(
        [table.loc[p, "regret"] for p in POLICIES],
        rows,
        xerr=[2 * table.loc[p, "regret s.e."] for p in POLICIES],
        fmt="o",
        color="#0072B2",
        capsize=3,
    )
    ax.axvline(
        best.regret_bound, color="k", ls="--", label=f"no policy loses less ({best.penalty})"
    )
    ax.set_yticks(rows, POLICIES)
    ax.invert_yaxis()
    ax.set_xlim(left=0)
    ax.set_xlabel(f"responses lost for {budget:g} spent (regret, mean and 2 s.e.)")
    ax.legend(frameon=False, loc="lower right")
    folder = pathlib.Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "budgets.png", dpi=150)
    print(f"Figure: {folder / 'budgets.png'}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=2000)
    parser.add_argument("--horizon", type=int, default=40, help="the budget")
    parser.add_argument("--out", default="results")
    main(**vars(parser.parse_args()))
