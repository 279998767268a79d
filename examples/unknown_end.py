"""A shop that may close any day: a horizon with a law, and what the forms of a bound give.

Play goes on with probability 0.95 each day. Run: python examples/unknown_end.py
"""

import argparse
import pathlib

import matplotlib.pyplot as plt
import numpy as np

import irsppl
from irsppl.penalties import FH


def main(replications: int = 2000, horizon: int = 80, out: str = "results") -> None:
    belief = irsppl.BetaBernoulli(alpha=[1, 1], beta=[1, 1])
    # The chance that day t is played, cut after `horizon` days.
    survivor = 0.95 ** np.arange(1, horizon + 1)
    bandit = irsppl.Bandit(belief, survivor)
    print(bandit)

    forms = irsppl.bound(
        bandit,
        ["ts", FH("survivor"), "irs.fh", "irs.v-zero", "irs.ff", "ideal"],
        num_samples=replications,
    )
    print(forms)
    data = irsppl.simulate(
        bandit, ["random", "ts", "irs.fh", "irs.index", "opt"], num_replications=replications
    )
    table = irsppl.summary(data)
    print(table.round(3).to_string())

    figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
    names = list(forms)
    errors = [2 * forms[n].stderr for n in names]
    values = [forms[n].value for n in names]
    ax.errorbar(values, range(len(names)), xerr=errors, fmt="o", color="#0072B2", capsize=3)
    ax.axvline(forms["ideal"].value, color="k", ls="--", label="V*")
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set_xlabel("bound on the expected total reward")
    ax.legend(frameon=False, loc="lower right")
    folder = pathlib.Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "horizons.png", dpi=150)
    print(f"Figure: {folder / 'horizons.png'}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=2000)
    parser.add_argument("--horizon", type=int, default=80)
    parser.add_argument("--out", default="results")
    main(**vars(parser.parse_args()))
