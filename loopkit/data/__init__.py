"""Text as encoded splits: what is trained on, in which order, and what an evaluation scores. Torch only in batches."""

from loopkit.data.encoding.cache import cache_folder
from loopkit.data.encoding.encode import prepare
from loopkit.data.encoding.identity import OtherData, check_same_data, located, run_tokenizer
from loopkit.data.rows import Examples, Row, step_sha
from loopkit.data.sampler import Sampler
from loopkit.data.scoring import Scoring
from loopkit.data.split import Prepared, Report, Split
from loopkit.data.steps import StepData, Steps, rank_places

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
    "rank_places",
    "run_tokenizer",
    "step_sha",
]
