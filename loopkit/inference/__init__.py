"""Inference: generation with a key-value cache, and early exit."""

from loopkit.inference.complete import Completed, complete
from loopkit.inference.early_exit import Answer, Exited, exit_early, read_logits, read_nll
from loopkit.inference.generate import Generated, generate
from loopkit.inference.policy import FULL, POLICIES, Policy, uncacheable_components
from loopkit.inference.prompts import max_positions
from loopkit.inference.sampling import GREEDY, Sampling
from loopkit.inference.speculation import Draft
from loopkit.inference.token_exit import ExitRule
from loopkit.inference.trajectory_view import TrajectoryView

__all__ = [
    "FULL",
    "GREEDY",
    "POLICIES",
    "Answer",
    "Completed",
    "Draft",
    "ExitRule",
    "Exited",
    "Generated",
    "Policy",
    "Sampling",
    "TrajectoryView",
    "complete",
    "exit_early",
    "generate",
    "max_positions",
    "read_logits",
    "read_nll",
    "uncacheable_components",
]
