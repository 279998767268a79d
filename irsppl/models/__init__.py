"""Reading a user's NumPyro function: what a belief needs of it, or what to change in it.

`read_arm(function)` gives an `ArmModel`; `load_model_file(path)` finds the functions in a file.
"""

from irsppl.models._files import LoadedModel as LoadedModel
from irsppl.models._files import load_model_file as load_model_file
from irsppl.models._files import run_file as run_file
from irsppl.models._model import ArmModel as ArmModel
from irsppl.models._model import Params as Params
from irsppl.models._model import SiteInfo as SiteInfo
from irsppl.models._read import read_arm as read_arm
from irsppl.models._structure import LinearGaussianForm as LinearGaussianForm
from irsppl.models._support import RewardSupport as RewardSupport
