"""Beliefs as parts of the engine. To add one: a file, which says which beliefs it `makes`."""

from __future__ import annotations

import importlib
import pkgutil

from irsppl.beliefs import Belief, InKernels
from irsppl.beliefs._points import PointBelief
from irsppl.engine.families.curves import Curves
from irsppl.engine.families.registry import MAKERS, Maker
from irsppl.engine.families.starts import Start, cloud_start, still_curves

for _file in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_file.name}")


def family_of(belief: Belief, needs: frozenset[str]) -> Maker | None:
    """What makes the belief's part, or None where it has none that answers these questions."""
    found = MAKERS.get(type(belief))
    if found is None or ("futures" in needs and not isinstance(belief, InKernels)):
        return None
    return found(belief, needs)


def start_of(belief: Belief, needs: frozenset[str]) -> Start | None:
    """How paths begin where only the user's model can say what a reward does to the belief."""
    return cloud_start(belief, needs) if isinstance(belief, PointBelief) else None


def curves_of(belief: Belief) -> Curves | None:
    """How its points take in rewards that are many; None where another part of the engine does."""
    return still_curves(belief) if isinstance(belief, PointBelief) else None
