"""Beliefs, one file per family or representation."""

from irsppl.beliefs._base import Belief, Path
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
    "DirichletCategorical",
    "GammaExponential",
    "GammaPoisson",
    "LinearGaussian",
    "NormalInverseGamma",
    "NormalNormal",
    "Path",
]
