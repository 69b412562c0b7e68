"""Running a model on text: early exit."""

from loopkit.inference.early_exit import Answer, Exited, exit_early, read_logits, read_nll
from loopkit.inference.part import Part

__all__ = ["Answer", "Exited", "Part", "exit_early", "read_logits", "read_nll"]
