"""Policies beside each other on the instances of the paper's five tables, on the same futures.

    python benchmarks/solo_policies.py [study ...] [--policies name ...] [--paths N]

Each row: regret (standard error), steadied; the difference to `irs.index` path by path; seconds.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import irsppl
from irsppl.studies import STUDIES, find_study, parse_arms

POLICIES = {
    "irs.index": "irs.index",
    "irs.index*": "irs.index*",
    "irs.index-16": "irs.index-16",
    "irs.index-64": "irs.index-64",
    "irs.index* of 16": irsppl.Index(num_futures=16, star=True),
    "irs.v-zero": "irs.v-zero",
    "irs.v-solo": "irs.v-solo",
    "fh-gittins": "fh-gittins",
    "opt": "opt",
}
TABLES = ("bernoulli_2", "bernoulli_10", "gaussian_2", "gaussian_10", "gaussian_5_noise")


def run(name, labels, paths):
    study = find_study(name)
    bandit = irsppl.Bandit(parse_arms(study.arms), study.horizon)
    base = None
    for label in labels:
        begin = time.perf_counter()
        try:
            data = irsppl.simulate(bandit, {label: POLICIES[label]}, 11, paths, progress=False)
        except ValueError as error:
            print(f"{name:18s} {label:20s} refused: {str(error)[:60]}", flush=True)
            continue
        seconds = time.perf_counter() - begin
        regret = data["steadied_regret"].values[0]
        base = regret if base is None else base
        told = [
            f"{x.mean():8.3f} ({x.std() / np.sqrt(len(x)):.3f})" for x in (regret, regret - base)
        ]
        print(f"{name:18s} {label:20s} {told[0]} {told[1]} {seconds:8.1f} s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", nargs="*", default=TABLES, help=f"of {', '.join(STUDIES)}")
    parser.add_argument("--policies", nargs="*", default=list(POLICIES))
    parser.add_argument("--paths", type=int, default=2000)
    options = parser.parse_args()
    for study in options.studies:
        run(study, options.policies, options.paths)
