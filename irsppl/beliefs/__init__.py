"""Beliefs, one file per family or representation.

What is imported under its own name is public; the rest is for the rooms to the right.
"""

from irsppl.beliefs import _batch as batch
from irsppl.beliefs._abilities import ExactLaws as ExactLaws
from irsppl.beliefs._abilities import ExactMax as ExactMax
from irsppl.beliefs._abilities import FiniteRewards as FiniteRewards
from irsppl.beliefs._abilities import InKernels as InKernels
from irsppl.beliefs._abilities import NormalScores as NormalScores
from irsppl.beliefs._abilities import PathVariances as PathVariances
from irsppl.beliefs._abilities import RewardTables as RewardTables
from irsppl.beliefs._abilities import Upkeep as Upkeep
from irsppl.beliefs._abilities import for_simulation, sized
from irsppl.beliefs._base import Belief as Belief
from irsppl.beliefs._base import examined, single_pulls
from irsppl.beliefs._cloud import Cloud
from irsppl.beliefs._conjugate import Conjugate as Conjugate
from irsppl.beliefs._conjugate import Natural, path_sums
from irsppl.beliefs._even import kronecker
from irsppl.beliefs._evolution import evolution
from irsppl.beliefs._future import CorrelatedFuture, Future, lattice
from irsppl.beliefs._joint import JointPoints, joint_enumeration
from irsppl.beliefs._points import PointBelief, Points, reward_logs, value_likelihoods
from irsppl.beliefs._rejuvenation import MoveState
from irsppl.beliefs._subclouds import num_parts, parts_of, thin, too_few, warn_simulated
from irsppl.beliefs._types import ArmModel
from irsppl.beliefs.beta_bernoulli import BetaBernoulli as BetaBernoulli
from irsppl.beliefs.dirichlet_categorical import DirichletCategorical as DirichletCategorical
from irsppl.beliefs.gamma_exponential import GammaExponential as GammaExponential
from irsppl.beliefs.gamma_poisson import GammaPoisson as GammaPoisson
from irsppl.beliefs.linear_gaussian import LinearGaussian as LinearGaussian
from irsppl.beliefs.normal_inverse_gamma import NormalInverseGamma as NormalInverseGamma
from irsppl.beliefs.normal_normal import NormalNormal as NormalNormal
