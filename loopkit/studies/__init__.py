"""Studies: runs a paper's experiments, measures them, and judges its claims."""

from loopkit.studies.judge import ClaimVerdict, judge
from loopkit.studies.reproduce import reproduce
from loopkit.studies.study import LoadedStudy, load_study

__all__ = ["ClaimVerdict", "LoadedStudy", "judge", "load_study", "reproduce"]
