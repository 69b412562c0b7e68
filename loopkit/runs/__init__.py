"""Run folders: checkpoints, metrics, provenance and plugin files of runs. No torch."""

from loopkit.runs.atomic import write_json, write_text
from loopkit.runs.checkpoint import Checkpoint, CheckpointProblem, checkpoints, newest_checkpoint
from loopkit.runs.folder import NoRun, RunExists, RunFolder, check_name, run_name
from loopkit.runs.metrics import MetricsLog, cut_metrics, read_events, read_metrics
from loopkit.runs.provenance import read_provenance

__all__ = [
    "Checkpoint",
    "CheckpointProblem",
    "MetricsLog",
    "NoRun",
    "RunExists",
    "RunFolder",
    "check_name",
    "checkpoints",
    "cut_metrics",
    "newest_checkpoint",
    "read_events",
    "read_metrics",
    "read_provenance",
    "run_name",
    "write_json",
    "write_text",
]
