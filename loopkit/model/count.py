"""Parameters, floating-point operations and cache size of a model at any depth, computed on ``meta``."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from loopkit.components.attention import Attention
from loopkit.loop import Batch, Loops, Trajectory
from loopkit.model.build import build_model
from loopkit.model.looped import LoopedModel


@dataclass(frozen=True)
class Parameters:
    """Numbers of parameters, shared ones cumulative_flops once.

    Args:
        unique: All.
        looped: Those that every loop uses again: injection, core and carry.
        parts: By top-level part; a shared parameter counts for the first part.
    """

    unique: int
    looped: int
    parts: dict[str, int]

    def effective(self, depth: int) -> int:
        """Parameters of the equivalent model without sharing at this depth."""
        return self.unique + (depth - 1) * self.looped


def count_parameters(model: nn.Module) -> Parameters:
    """Count the parameters of a model, which may be on ``meta``."""
    parts: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        part = name.partition(".")[0]
        parts[part] = parts.get(part, 0) + parameter.numel()
    looped = sum(parts.get(part, 0) for part in ("injection", "core", "carry"))
    return Parameters(sum(parts.values()), looped, parts)


@dataclass(frozen=True)
class Flops:
    """Floating-point operations of a forward pass, per token; a multiply and an add are two.

    Attention counts every pair of the sequence, as hardware figures do, although half of them are masked.

    Args:
        prelude: Embedding and prelude.
        loops: Each loop: injection, core and carry.
        read: One readout with its head: coda, readout and logits.
    """

    prelude: float
    loops: tuple[float, ...]
    read: float

    def forward(self, reads: int = 1) -> float:
        """Return the FLOPs of a forward pass that reads this many loops."""
        return self.prelude + sum(self.loops) + reads * self.read

    def training(self, *, backprop: int, reads: int) -> float:
        """Return the FLOPs of a training pass; gradient adds two forward passes of the last ``backprop`` loops."""
        differentiated = self.prelude + sum(self.loops[len(self.loops) - backprop :]) + reads * self.read
        return self.forward(reads) + 2 * differentiated


def count_flops(model: LoopedModel, depth: int, length: int) -> Flops:
    """Count the operations of a model at a depth.

    Args:
        model: Any looped model; it is built anew on ``meta``.
        depth: Loops, >= 1.
        length: Tokens in a sequence.
    """
    # a view of a parameter that requires a gradient has no grad_fn without gradients, which the counter refuses
    meta_model = on_meta(model).eval().requires_grad_(False)
    batch = Batch.of(torch.zeros(1, length, dtype=torch.int64, device="meta"))
    cumulative_flops: list[int] = []
    # math attention, because its products are counted on every device
    with torch.no_grad(), sdpa_kernel([SDPBackend.MATH]), FlopCounterMode(display=False) as counter:

        def record_flops(t: Trajectory, k: int) -> None:
            cumulative_flops.append(counter.get_total_flops())

        start = meta_model.run(batch, Loops.fixed(0))
        prelude = counter.get_total_flops()
        t = meta_model.run(batch, Loops.fixed(depth), start=start.state(0), after_loop=record_flops)
        t.logits(depth)
        read = counter.get_total_flops() - cumulative_flops[-1]
    marks = [2 * prelude, *cumulative_flops]
    loops = tuple((after - before) / length for before, after in pairwise(marks))
    return Flops(prelude / length, loops, read / length)


def cache_numbers(model: nn.Module, depth: int) -> int:
    """Numbers per token that a full cache holds at a depth: one slot for each attention layer in each loop.

    Times the bytes of a number and the tokens kept, this is the memory of the cache.
    """
    total = 0
    for name, part in model.named_modules():
        if isinstance(part, Attention):
            total += part.cached_numbers * (depth if name.startswith("core.") else 1)
    return total


def on_meta(model: LoopedModel) -> LoopedModel:
    """Copy a model to ``meta``: shapes without values."""
    sizes = {"vocabulary": model.vocabulary, "max_length": model.max_length, "max_loops": model.max_loops}
    return build_model(model.section, **sizes, device="meta")
