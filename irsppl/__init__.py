"""Finite-horizon Bayesian bandits: policies that know how much time is left, and bounds on what
any policy could earn."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from irsppl import plots as plots
    from irsppl.bandit import Bandit as Bandit
    from irsppl.beliefs import Belief as Belief
    from irsppl.beliefs import BetaBernoulli as BetaBernoulli
    from irsppl.beliefs import DirichletCategorical as DirichletCategorical
    from irsppl.beliefs import GammaExponential as GammaExponential
    from irsppl.beliefs import GammaPoisson as GammaPoisson
    from irsppl.beliefs import LinearGaussian as LinearGaussian
    from irsppl.beliefs import NormalInverseGamma as NormalInverseGamma
    from irsppl.beliefs import NormalNormal as NormalNormal
    from irsppl.beliefs.from_numpyro import from_numpyro as from_numpyro
    from irsppl.beliefs.from_numpyro import from_numpyro_joint as from_numpyro_joint
    from irsppl.bounds import Bound as Bound
    from irsppl.bounds import bound as bound
    from irsppl.bounds import solve_inner as solve_inner
    from irsppl.certificates import Certificate as Certificate
    from irsppl.certificates import certify as certify
    from irsppl.live.experiment import Experiment as Experiment
    from irsppl.outcomes import Outcome as Outcome
    from irsppl.penalties import Mix as Mix
    from irsppl.penalties import Penalty as Penalty
    from irsppl.penalties import VFit as VFit
    from irsppl.penalties import VSolo as VSolo
    from irsppl.policies import Index as Index
    from irsppl.policies import Policy as Policy
    from irsppl.results import summary as summary
    from irsppl.simulation import action_probabilities as action_probabilities
    from irsppl.simulation import choose as choose
    from irsppl.simulation import decide as decide
    from irsppl.simulation import simulate as simulate

# Which module each public name lives in. Nothing is imported before it is asked for, because JAX
# and NumPyro take seconds: `irsppl --help` and a script that only draws wait for neither.
_NAMES = {
    "bandit": ("Bandit",),
    "beliefs": (
        *("Belief", "BetaBernoulli", "DirichletCategorical", "GammaExponential", "GammaPoisson"),
        *("LinearGaussian", "NormalInverseGamma", "NormalNormal"),
    ),
    "beliefs.from_numpyro": ("from_numpyro", "from_numpyro_joint"),
    "bounds": ("Bound", "bound", "solve_inner"),
    "certificates": ("Certificate", "certify"),
    "live.experiment": ("Experiment",),
    "outcomes": ("Outcome",),
    "penalties": ("Mix", "Penalty", "VFit", "VSolo"),
    "policies": ("Index", "Policy"),
    "results": ("summary",),
    "simulation": ("action_probabilities", "choose", "decide", "simulate"),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}

# Modules that users reach for as attributes, such as `irsppl.plots` or `irsppl.policies`.
_MODULES = ("beliefs", "bounds", "certificates", "penalties", "plots", "policies", "studies")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"irsppl.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'irsppl' has no attribute {name!r}")
    value = getattr(import_module(f"irsppl.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_MODULES})


__all__ = sorted(_HOME)
