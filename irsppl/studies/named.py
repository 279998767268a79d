"""The named studies: a small one to start with, and those of the paper.

A study is data: copy one of these into a file of your own, change it, and give the file's path to
`irsppl study`.
"""

from __future__ import annotations

import dataclasses
import pathlib
import runpy
from collections.abc import Sequence
from typing import Any

from irsppl._checks import one_of
from irsppl.penalties import PENALTIES
from irsppl.policies import POLICIES
from irsppl.studies.study import Study

_SHORT = (10, 25, 50, 75, 100, 125, 150, 175, 200)
_LONG = (25, 50, 100, 150, 200, 250, 300, 400, 500)
_RIVALS = ("bayes-ucb", "ids", "ogi")
# What the paper's three larger studies share.
_LARGE: dict[str, Any] = {
    "horizon": 500,
    "horizons": _LONG,
    "penalties": ("ts", "irs.fh", "irs.ff", "irs.v-zero"),
    "figure_replications": 2000,
}

_ALL = [
    Study(
        name="quickstart",
        title="Three Bernoulli arms with unequal priors",
        arms=("beta(3,1)", "beta(1,1)", "beta(1,3)"),
        horizon=60,
        horizons=(15, 30, 45),
        policies=("ts", "irs.fh", "irs.v-zero", "irs.index", "opt"),
        penalties=("ts", "irs.fh", "irs.ff", "irs.v-zero", "ideal"),
        replications=2000,
    ),
    Study(
        name="worked_example",
        title="The paper's illustrative example: inner values of one future, and six bounds",
        arms=("beta(3,1)", "beta(1,1)", "beta(1,3)"),
        horizon=8,
        horizons=(2, 4, 6),
        policies=("ts", "irs.fh", "irs.v-zero", "irs.index", "opt"),
        penalties=("zero", "ts", "irs.fh", "irs.v-zero", "irs.v-emax", "ideal"),
        outcome={
            "means": [0.235, 0.443, 0.787],
            "rewards": [
                [0, 1, 1, 1, 0, 0, 0, 0],
                [1, 0, 0, 1, 1, 1, 1, 0],
                [1, 1, 1, 1, 0, 0, 1, 1],
            ],
        },
        paper="worked_example",
    ),
    Study(
        name="bernoulli_2",
        title="Two Bernoulli arms, uniform priors",
        arms="beta(1,1)x2",
        horizon=200,
        horizons=_SHORT,
        policies=(
            *("ts", "irs.fh", "irs.v-zero", "irs.v-emax", "irs.index"),
            *_RIVALS,
            *("lagr-rt", "lagr-ot", "opt"),
        ),
        penalties=("ts", "irs.fh", "irs.ff", "irs.v-zero", "irs.v-emax", "lagrangian", "ideal"),
        paper="bernoulli_2",
    ),
    Study(
        name="bernoulli_10",
        title="Ten Bernoulli arms, uniform priors",
        arms="beta(1,1)x10",
        policies=("ts", "irs.fh", "irs.v-zero", "irs.index", *_RIVALS),
        paper="bernoulli_10",
        **_LARGE,
    ),
    Study(
        name="gaussian_2",
        title="Two Gaussian arms",
        arms="normal(0,1,noise=1)x2",
        horizon=200,
        horizons=_SHORT,
        policies=("ts", "irs.fh", "irs.v-zero", "irs.v-emax", "irs.index", *_RIVALS),
        penalties=("ts", "irs.fh", "irs.ff", "irs.v-zero", "irs.v-emax"),
        paper="gaussian_2",
    ),
    Study(
        name="gaussian_10",
        title="Ten Gaussian arms",
        arms="normal(0,1,noise=1)x10",
        policies=("ts", "irs.fh", "irs.v-zero", "irs.index", *_RIVALS),
        paper="gaussian_10",
        **_LARGE,
    ),
    Study(
        name="gaussian_5_noise",
        title="Five Gaussian arms, unequal noise",
        arms=tuple(f"normal(0,1,noise={noise})" for noise in (0.1, 0.4, 1, 4, 10)),
        policies=("ts", "irs.fh", "irs.v-zero", "irs.index", "irs.index*", *_RIVALS),
        paper="gaussian_5_noise",
        **_LARGE,
    ),
]


def _existing(study: Study) -> Study:
    """The study without the policies and penalties that this version does not have."""

    def split(names: Sequence[Any], known: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return tuple(n for n in names if n in known), tuple(n for n in names if n not in known)

    policies, no_policies = split(tuple(study.policies), POLICIES)
    penalties, no_penalties = split(study.penalties, PENALTIES)
    left_out = (*no_policies, *no_penalties)
    return dataclasses.replace(study, policies=policies, penalties=penalties, left_out=left_out)


STUDIES: dict[str, Study] = {study.name: _existing(study) for study in _ALL}


def find_study(study: Any) -> Study:
    """A study from itself, its name, or the path of a Python file that defines `study`."""
    if isinstance(study, Study):
        return study
    if not isinstance(study, str | pathlib.Path):
        raise ValueError(f"study must be a Study, a name or a path, got {study!r}")
    path = pathlib.Path(study)
    if path.suffix != ".py":
        return STUDIES[one_of("study", str(study), STUDIES)]
    if not path.is_file():
        raise ValueError(f"there is no study file {path}")
    try:
        found = runpy.run_path(str(path)).get("study")
    except ValueError:
        raise
    except (Exception, SystemExit) as error:
        raise ValueError(
            f"study file {path} could not be run: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(found, Study):
        raise ValueError(f"study file {path} must define study = Study(...), found {found!r}")
    return found
