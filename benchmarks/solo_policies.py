"""Policies beside each other on the instances of the paper's five tables, on the same futures.

    python benchmarks/solo_policies.py [study ...] [--policies name ...] [--paths N] [--out FOLDER]

Each row: regret (standard error), steadied; the differences to `irs.index` and to `irs.v-zero` path
by path. With --out the regrets of each row are kept in that folder, and a second call goes on where
the first stopped. `irs.v-solo` needs most of a second for a path of 500 periods: a fifth of them.
"""

from __future__ import annotations

import argparse
import pathlib

import numpy as np

import irsppl
from irsppl.studies import STUDIES, find_study, parse_arms

POLICIES = {
    "irs.index": "irs.index",
    "irs.v-zero": "irs.v-zero",
    "irs.v-solo": "irs.v-solo",
    "irs.index*": "irs.index*",
    "irs.index-16": "irs.index-16",
    "irs.index-64": "irs.index-64",
    "fh-gittins": "fh-gittins",
    "opt": "opt",
}
TABLES = ("bernoulli_2", "bernoulli_10", "gaussian_2", "gaussian_10", "gaussian_5_noise")
# Seconds for a path where others take milliseconds.
SLOW = {"irs.v-solo"}


def regrets(study, label, paths, folder):
    """Steadied regrets [S] of a policy; None where it does not exist."""
    file = folder / f"{study} {label.replace('*', ' star')} {paths}.npy" if folder else None
    if file and file.exists():
        return np.load(file)
    found = find_study(study)
    bandit = irsppl.Bandit(parse_arms(found.arms), found.horizon)
    try:
        data = irsppl.simulate(bandit, {label: POLICIES[label]}, 11, paths, progress=False)
    except ValueError as error:
        print(f"{study:18s} {label:20s} refused: {str(error)[:60]}", flush=True)
        return None
    if file:
        folder.mkdir(parents=True, exist_ok=True)
        np.save(file, data["steadied_regret"].values[0])
    return data["steadied_regret"].values[0]


def told(x):
    return f"{x.mean():8.3f} ({x.std(ddof=1) / np.sqrt(len(x)):.3f})"


def run(study, labels, paths, folder):
    found = {}
    for label in labels:
        x = regrets(study, label, paths // 5 if label in SLOW else paths, folder)
        if x is None:
            continue
        found[label] = x
        row = [told(x)]
        for base in ("irs.index", "irs.v-zero"):
            shared = min(len(x), len(found.get(base, ())))
            row.append(told(x[:shared] - found[base][:shared]) if shared else f"{'-':>16s}")
        print(f"{study:18s} {label:20s} {len(x):6d} paths", *row, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", nargs="*", default=TABLES, help=f"of {', '.join(STUDIES)}")
    parser.add_argument("--policies", nargs="*", default=list(POLICIES), choices=list(POLICIES))
    parser.add_argument("--paths", type=int, default=2000)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    for study in options.studies:
        run(study, options.policies, options.paths, options.out)
