"""Types of models for annotations: reading models loads NumPyro, which takes a second."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from irsppl.models import ArmModel as ArmModel
    from irsppl.models import Params as Params
else:  # field types are read when a class is made
    ArmModel = Params = Any
