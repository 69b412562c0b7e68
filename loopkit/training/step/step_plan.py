"""The data, loops, learning rate and FLOPs of every optimizer step."""

from __future__ import annotations

from dataclasses import dataclass

from loopkit.components.lr import LearningRate
from loopkit.cost.flops import StepFlops
from loopkit.data import Steps
from loopkit.data.batch_sizes import BatchSizes
from loopkit.training.step.loop_sampling import LoopSampler


@dataclass(frozen=True)
class StepPlan:
    """What each optimizer step consists of, as functions of its number.

    Args:
        num_steps: Optimizer steps of the whole run.
        sizes: Batch, micro-batch, accumulation and ranks.
        data: The batches of a step.
        sampler: The loops of a step.
        lr: The learning rate of a step.
        flops: The floating-point operations of a step; None if they cannot be counted.
    """

    num_steps: int
    sizes: BatchSizes
    data: Steps
    sampler: LoopSampler
    lr: LearningRate
    flops: StepFlops | None
