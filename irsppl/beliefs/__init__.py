"""Beliefs, one file per family or representation."""

from irsppl.beliefs._abilities import (
    ExactLaws,
    ExactMax,
    FiniteRewards,
    InKernels,
    RewardTables,
    Upkeep,
    for_simulation,
    sized,
)
from irsppl.beliefs._base import Belief
from irsppl.beliefs._conjugate import Conjugate
from irsppl.beliefs._future import CorrelatedFuture, Future, lattice
from irsppl.beliefs.beta_bernoulli import BetaBernoulli
from irsppl.beliefs.dirichlet_categorical import DirichletCategorical
from irsppl.beliefs.gamma_exponential import GammaExponential
from irsppl.beliefs.gamma_poisson import GammaPoisson
from irsppl.beliefs.linear_gaussian import LinearGaussian
from irsppl.beliefs.normal_inverse_gamma import NormalInverseGamma
from irsppl.beliefs.normal_normal import NormalNormal

__all__ = [
    "Belief",
    "BetaBernoulli",
    "Conjugate",
    "CorrelatedFuture",
    "DirichletCategorical",
    "ExactLaws",
    "ExactMax",
    "FiniteRewards",
    "Future",
    "GammaExponential",
    "GammaPoisson",
    "InKernels",
    "LinearGaussian",
    "NormalInverseGamma",
    "NormalNormal",
    "RewardTables",
    "Upkeep",
    "for_simulation",
    "lattice",
    "sized",
]
