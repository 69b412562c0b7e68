"""Evaluation of a model at every depth: the sweep, tasks, probes and results. Torch is imported when a model runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loopkit.evaluation.files import completions_of, results_of, write_result
from loopkit.evaluation.result import Conditions, ModelSource, Result, TrainedDepths
from loopkit.recipe.depths import check_depths, format_depths, parse_depths

if TYPE_CHECKING:
    from loopkit.evaluation.measure import evaluate as evaluate
    from loopkit.evaluation.settings import EvaluationSettings as EvaluationSettings

__all__ = [
    "Conditions",
    "EvaluationSettings",
    "ModelSource",
    "Result",
    "TrainedDepths",
    "check_depths",
    "completions_of",
    "evaluate",
    "format_depths",
    "parse_depths",
    "results_of",
    "write_result",
]


def __getattr__(name: str) -> Any:
    if name == "evaluate":
        from loopkit.evaluation.measure import evaluate

        return evaluate
    if name == "EvaluationSettings":
        from loopkit.evaluation.settings import EvaluationSettings

        return EvaluationSettings
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
