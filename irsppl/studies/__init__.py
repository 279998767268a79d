"""Studies: a bandit, policies and bounds as data; run, resumed, tabled, drawn and compared."""

from irsppl.studies.arms import parse_arms
from irsppl.studies.named import STUDIES, find_study
from irsppl.studies.report import comparison, study_table
from irsppl.studies.run import StudyResult, open_study, run_study
from irsppl.studies.study import Study

__all__ = [
    "STUDIES",
    "Study",
    "StudyResult",
    "comparison",
    "find_study",
    "open_study",
    "parse_arms",
    "run_study",
    "study_table",
]
