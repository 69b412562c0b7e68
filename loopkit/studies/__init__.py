"""Studies: a paper's experiments with its claims as data; run, measured and judged."""

from loopkit.studies.judge import Verdict, judge
from loopkit.studies.reproduce import reproduce
from loopkit.studies.study import LoadedStudy, load_study

__all__ = ["LoadedStudy", "Verdict", "judge", "load_study", "reproduce"]
