"""Estimate memory, time and bottleneck on 1 to 1024 GPUs, for every ZeRO stage, with and without recomputing.

With P trained parameters in fp32, n GPUs, a accumulated micro-steps, and b bytes a second for each GPU:

    compute       = FLOPs of the step / (n * mfu * peak);  recomputing adds the forward of the loops that carry gradient
    communication = bytes / b                              no overlap with compute
    stage 0, 1    4P reduced and 4P gathered               once a step
    stage 2       4P reduced in every micro-step, 4P gathered once
    stage 3       4P reduced, and 4P gathered in the forward and again in the backward pass, in every micro-step; what
                  is too large to stay gathered is fetched anew in every loop
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from loopkit.cost.hardware import MEMORY_SHARE
from loopkit.cost.memory import MAX_LIVE_PARAMETERS, Activations, States

GPU_COUNTS = tuple(2**power for power in range(11))
STAGES = (0, 1, 2, 3)


@dataclass(frozen=True)
class Cluster:
    """The machines.

    Args:
        memory: Bytes of one GPU.
        flops_per_s: Peak FLOP/s of one GPU.
        mfu: Share of the peak that computation reaches.
        link: Bytes per second of one GPU to others in its machine.
        network: Bytes per second of one GPU to other machines.
        per_machine: GPUs in a machine.
    """

    memory: float
    flops_per_s: float
    mfu: float
    link: float = 450e9
    network: float = 50e9
    per_machine: int = 8

    def bandwidth(self, gpus: int) -> float:
        """Return the bytes per second between one GPU and all others: those of the slowest link."""
        return self.link if gpus <= self.per_machine else min(self.link, self.network)


@dataclass(frozen=True)
class Work:
    """The cost of a step of a recipe, independent of the machines.

    Args:
        parameters: Number of parameters.
        trained: Trained parameters.
        moments: Numbers in the optimizer state.
        looped: Parameters that every loop uses.
        loops: Mean number of loops.
        batch: Sequences of a step.
        length: Tokens of a sequence.
        flops_per_token: Forward and backward.
        recomputed_per_token: FLOPs that recomputing adds.
        zero: ``zero_optimization`` of the recipe; its stage is ignored.
        activations: Activations without and with recomputing.
        averaged: Parameters of which ``train.ema`` keeps an average.
    """

    parameters: int
    trained: int
    moments: int
    looped: int
    loops: float
    batch: int
    length: int
    flops_per_token: float
    recomputed_per_token: float
    zero: Mapping[str, Any]
    activations: Mapping[bool, Activations]
    averaged: int = 0

    def states(self, stage: int, gpus: int) -> States:
        """Return the bytes that stay allocated on one of ``gpus`` GPUs."""
        zero = {**self.zero, "stage": stage}
        return States.of(self.parameters, self.trained, self.moments, zero, gpus, self.averaged)


def layouts(work: Work, cluster: Cluster) -> Iterator[dict[str, Any]]:
    """Yield a layout for each number of GPUs, ZeRO stage and choice of recomputing; bytes are per GPU."""
    for gpus in GPU_COUNTS:
        for stage in STAGES:
            if stage and gpus == 1:
                continue  # there is nothing to shard
            for recompute in (False, True):
                yield _layout(work, cluster, gpus, stage, recompute)


def _layout(work: Work, cluster: Cluster, gpus: int, stage: int, recompute: bool) -> dict[str, Any]:
    states, activations = work.states(stage, gpus), work.activations[recompute]
    share = work.batch // gpus if work.batch % gpus == 0 else 0
    budget = MEMORY_SHARE * cluster.memory
    micro = max(
        (size for size in _divisors(share) if activations.peak(size, states, size < share) <= budget), default=0
    )
    shown = micro or 1
    layout = {
        "gpus": gpus,
        "stage": stage,
        "checkpointing": recompute,
        "micro_batch": shown,
        "memory_bytes": {
            "parameters": states.parameters,
            "gradients": states.gradients,
            "optimizer": states.optimizer,
            "buffers": states.buffers,
            "average": states.average,
            "activations": activations.stored(shown),
            "logits": activations.logits(shown),
            "total": activations.peak(shown, states, shown < share),
        },
        "fits": micro > 0,
    }
    if share == 0:
        return layout | {"fits": False, "limit": "batch"}
    if micro == 0:
        return layout | {"limit": "memory"}
    compute, network = seconds(work, cluster, gpus, stage, recompute, share // micro)
    tokens = work.batch * work.length
    return layout | {
        "accumulation": share // micro,
        "step_s": compute + network,
        "compute_s": compute,
        "communication_s": network,
        "tokens_per_s": tokens / (compute + network),
        "mfu": tokens * work.flops_per_token / (compute + network) / (gpus * cluster.flops_per_s),
        "limit": "network" if network > compute else "compute",
    }


def seconds(
    work: Work, cluster: Cluster, gpus: int, stage: int, recompute: bool, accumulation: int
) -> tuple[float, float]:
    """Return the seconds of computation and of communication in a step; see the module docstring."""
    per_token = work.flops_per_token + (work.recomputed_per_token if recompute else 0.0)
    compute = work.batch * work.length * per_token / (gpus * cluster.mfu * cluster.flops_per_s)
    num_bytes = 4 * work.trained * (gpus - 1) / gpus  # one reduce-scatter or all-gather of fp32 numbers
    repeats = {0: 2, 1: 2, 2: accumulation + 1, 3: accumulation * (1 + 2 * _num_gathers(work))}[stage]
    return compute, repeats * num_bytes / cluster.bandwidth(gpus)


def _num_gathers(work: Work) -> float:
    """Mean number of gathers of a parameter in a pass under ZeRO-3: one, unless the core is too large to stay."""
    max_live = int(work.zero.get("stage3_max_live_parameters", MAX_LIVE_PARAMETERS))
    if work.looped <= max_live:
        return 1.0
    return 1.0 + (work.loops - 1) * work.looped / work.parameters


def _divisors(number: int) -> list[int]:
    return [size for size in range(1, number + 1) if number % size == 0]
