"""Studies: a bandit, policies and bounds as data; run, resumed, tabled, drawn and compared.

What a name needs is imported when it is asked for: tables need pandas, which other commands do not.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from irsppl.studies.arms import parse_arms as parse_arms
    from irsppl.studies.named import STUDIES as STUDIES
    from irsppl.studies.named import find_study as find_study
    from irsppl.studies.report import comparison as comparison
    from irsppl.studies.report import study_table as study_table
    from irsppl.studies.run import StudyResult as StudyResult
    from irsppl.studies.run import open_study as open_study
    from irsppl.studies.run import run_study as run_study
    from irsppl.studies.study import Study as Study

_NAMES = {
    "arms": ("parse_arms",),
    "named": ("STUDIES", "find_study"),
    "report": ("comparison", "study_table"),
    "run": ("StudyResult", "open_study", "run_study"),
    "study": ("Study",),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'irsppl.studies' has no attribute {name!r}")
    value = getattr(import_module(f"irsppl.studies.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})


__all__ = sorted(_HOME)
