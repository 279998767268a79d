"""A small study of one bandit: regrets, bounds, a certificate and a figure, in about a minute.

Three Bernoulli arms with unequal priors and 60 periods. Run: python examples/quickstart.py
"""

import argparse
import pathlib

import irsppl
from irsppl import plots


def main(replications: int = 5000, out: str = "results") -> None:
    belief = irsppl.BetaBernoulli(alpha=[3, 1, 1], beta=[1, 1, 3])
    bandit = irsppl.Bandit(belief, horizon=60, labels=["old", "new", "long shot"])

    policies = ["random", "greedy", "ts", "irs.fh", "irs.v-zero", "irs.index", "opt"]
    data = irsppl.simulate(bandit, policies, num_replications=replications)
    print("What each policy earns, and its regret against knowing the best arm:\n")
    print(irsppl.summary(data).round(3).to_string())

    penalties = ["ts", "irs.fh", "irs.ff", "irs.v-zero", "ideal"]
    bounds = irsppl.bound(bandit, penalties, num_samples=replications)
    print("\nWhat no policy can beat (and so the least regret there can be):\n")
    for name, bound in bounds.items():
        error = "exact" if bound.exact else f"s.e. {bound.stderr:.4f}"
        print(
            f"  {name:12} value at most {bound.value:8.4f}, regret at least "
            f"{bound.regret_bound:7.4f}  ({error})"
        )

    print()
    print(
        irsppl.certify(bandit, "irs.index", num_replications=replications, num_samples=replications)
    )

    folder = pathlib.Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    figure = plots.plot_regret(data, bounds).figure
    figure.savefig(folder / "quickstart.png", dpi=150, bbox_inches="tight")
    print(f"\nFigure: {folder / 'quickstart.png'}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=5000)
    parser.add_argument("--out", default="results")
    main(**vars(parser.parse_args()))
