"""Beliefs, one file per family or representation."""

from irsppl.beliefs._abilities import ExactLaws as ExactLaws
from irsppl.beliefs._abilities import ExactMax as ExactMax
from irsppl.beliefs._abilities import FiniteRewards as FiniteRewards
from irsppl.beliefs._abilities import InKernels as InKernels
from irsppl.beliefs._abilities import NormalScores as NormalScores
from irsppl.beliefs._abilities import PathVariances as PathVariances
from irsppl.beliefs._abilities import RewardTables as RewardTables
from irsppl.beliefs._abilities import Upkeep as Upkeep
from irsppl.beliefs._abilities import for_simulation as for_simulation
from irsppl.beliefs._abilities import sized as sized
from irsppl.beliefs._base import Belief as Belief
from irsppl.beliefs._conjugate import Conjugate as Conjugate
from irsppl.beliefs._future import CorrelatedFuture as CorrelatedFuture
from irsppl.beliefs._future import Future as Future
from irsppl.beliefs._future import lattice as lattice
from irsppl.beliefs.beta_bernoulli import BetaBernoulli as BetaBernoulli
from irsppl.beliefs.dirichlet_categorical import DirichletCategorical as DirichletCategorical
from irsppl.beliefs.gamma_exponential import GammaExponential as GammaExponential
from irsppl.beliefs.gamma_poisson import GammaPoisson as GammaPoisson
from irsppl.beliefs.linear_gaussian import LinearGaussian as LinearGaussian
from irsppl.beliefs.normal_inverse_gamma import NormalInverseGamma as NormalInverseGamma
from irsppl.beliefs.normal_normal import NormalNormal as NormalNormal
