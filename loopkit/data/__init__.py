"""Encoded splits, the order of training, and the sequences that an evaluation scores. Only batches need torch."""

from loopkit.data.encoding.cache import cache_folder
from loopkit.data.encoding.encode import prepare
from loopkit.data.encoding.identity import OtherData, check_same_data, located, run_tokenizer
from loopkit.data.rows import Examples, Row, step_sha
from loopkit.data.sampler import Sampler
from loopkit.data.scoring import Scoring
from loopkit.data.split import Prepared, Report, Split
from loopkit.data.steps import StepData, Steps

__all__ = [
    "Examples",
    "OtherData",
    "Prepared",
    "Report",
    "Row",
    "Sampler",
    "Scoring",
    "Split",
    "StepData",
    "Steps",
    "cache_folder",
    "check_same_data",
    "located",
    "prepare",
    "run_tokenizer",
    "step_sha",
]
