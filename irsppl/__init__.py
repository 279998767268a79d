"""Finite-horizon Bayesian bandits: policies that know how much time is left, and bounds on what
any policy could earn."""

from irsppl.bandit import Bandit
from irsppl.beliefs import (
    BetaBernoulli,
    DirichletCategorical,
    GammaExponential,
    GammaPoisson,
    NormalInverseGamma,
    NormalNormal,
)
from irsppl.bounds import bound, certify, solve_inner
from irsppl.outcomes import Outcome
from irsppl.policies import Index
from irsppl.results import summary
from irsppl.simulate import action_probabilities, choose, simulate

__version__ = "0.1.0"

__all__ = [
    "Bandit",
    "BetaBernoulli",
    "DirichletCategorical",
    "GammaExponential",
    "GammaPoisson",
    "Index",
    "NormalInverseGamma",
    "NormalNormal",
    "Outcome",
    "action_probabilities",
    "bound",
    "certify",
    "choose",
    "simulate",
    "solve_inner",
    "summary",
]
