"""Reading a user's NumPyro function: what a belief needs of it, or what to change in it.

`read_arm(function)` gives an `ArmModel`; `load_model_file(path)` finds the functions in a file.
"""

from irsppl.models._files import LoadedModel, load_model_file, run_file
from irsppl.models._model import ArmModel, Params, SiteInfo
from irsppl.models._read import read_arm
from irsppl.models._structure import LinearGaussianForm
from irsppl.models._support import RewardSupport

__all__ = [
    "ArmModel",
    "LinearGaussianForm",
    "LoadedModel",
    "Params",
    "RewardSupport",
    "SiteInfo",
    "load_model_file",
    "read_arm",
    "run_file",
]
