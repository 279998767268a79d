"""Finite-horizon Bayesian bandits: policies that know how much time is left, and bounds on what
any policy could earn."""

from importlib import import_module
from typing import Any

from irsppl.bandit import Bandit
from irsppl.beliefs import (
    BetaBernoulli,
    DirichletCategorical,
    GammaExponential,
    GammaPoisson,
    LinearGaussian,
    NormalInverseGamma,
    NormalNormal,
)
from irsppl.bounds import bound, solve_inner
from irsppl.certificates import certify
from irsppl.outcomes import Outcome
from irsppl.penalties import Mix, VFit, VSolo
from irsppl.policies import Index
from irsppl.results import summary
from irsppl.simulate import action_probabilities, choose, decide, simulate

__version__ = "0.1.0"

# NumPyro takes a second to import: only those who write arms in it wait for it.
_LAZY = ("from_numpyro", "from_numpyro_joint")


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        module = import_module("irsppl.beliefs.from_numpyro")
        return getattr(module, name)
    if name == "Experiment":  # and a database library is for those who run experiments
        return import_module("irsppl.live.experiment").Experiment
    if name == "plots":
        return import_module("irsppl.plots")
    raise AttributeError(f"module 'irsppl' has no attribute {name!r}")


__all__ = [
    "Bandit",
    "BetaBernoulli",
    "DirichletCategorical",
    "Experiment",
    "GammaExponential",
    "GammaPoisson",
    "Index",
    "LinearGaussian",
    "Mix",
    "NormalInverseGamma",
    "NormalNormal",
    "Outcome",
    "VFit",
    "VSolo",
    "action_probabilities",
    "bound",
    "certify",
    "choose",
    "decide",
    "from_numpyro",
    "from_numpyro_joint",
    "simulate",
    "solve_inner",
    "summary",
]
