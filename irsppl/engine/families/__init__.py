"""Beliefs as parts of the engine. To add one: a file, which says which beliefs it `makes`."""

from __future__ import annotations

import importlib
import pkgutil

from irsppl.beliefs import Belief, InKernels
from irsppl.engine.families.registry import MAKERS, Maker
from irsppl.engine.families.starts import curves_of, start_of

for _file in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_file.name}")


def family_of(belief: Belief, needs: frozenset[str]) -> Maker | None:
    """What makes the belief's part, or None where it has none that answers these questions."""
    found = MAKERS.get(type(belief))
    if found is None or ("futures" in needs and not isinstance(belief, InKernels)):
        return None
    return found(belief, needs)
