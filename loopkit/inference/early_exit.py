"""Early exit by sequence: who is ready stops, and the loops that follow are computed for the others alone.

Letters: B sequences, T tokens, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from loopkit.components.exit import Exit, sequence_score
from loopkit.errors import UserError
from loopkit.inference.trajectory_view import TrajectoryView
from loopkit.loop import Batch, LoopedModelProtocol, Loops, Trajectory

Answer = Callable[[Trajectory, int], Tensor]
"""What is wanted of sequences that stop after loop k: given a pass of them alone and k, ``[b, ...]``."""


@dataclass(frozen=True)
class Exited:
    """A batch run with early exit.

    Args:
        depth: ``[B]`` int64, loops that each sequence ran.
        answer: ``[B, ...]``, what was asked for, of each sequence at the loop where it stopped.
    """

    depth: Tensor
    answer: Tensor


def read_logits(t: Trajectory, k: int) -> Tensor:
    """The predictions, ``[b, T, V]``."""
    return t.logits(k)


def read_nll(t: Trajectory, k: int) -> Tensor:
    """What the labels cost, ``[b, T]`` in nats, 0 where a token is not scored."""
    return t.nll([k])[0]


@torch.no_grad()
def exit_early(
    model: LoopedModelProtocol,
    batch: Batch,
    exit: Exit,
    loops: int,
    *,
    threshold: float | None = None,
    last: Callable[[int], int] | None = None,
    answer: Answer = read_logits,
) -> Exited:
    """Run a batch, and let every sequence stop after the first loop at which it is ready.

        depth_b = min {k : C_bk >= threshold},  at most ``loops``          C_bk: mean score of the sequence's tokens

    A sequence that has stopped is computed no further: the core runs on fewer rows, and not at all once none is left.
    Neither is it scored. The last loop stops whatever is left, unscored. A score that is not a number stops nobody.

    Args:
        model: In evaluation mode.
        batch: On the model's device.
        exit: Says who is ready.
        loops: Most loops, >= 1.
        threshold: Instead of the exit's own; minus infinity stops all after the first loop, infinity none before the
            last, and then nothing is scored either.
        last: Which loop counts as the last when loop k is read; ``None``: k itself.
        answer: What is wanted of the sequences.

    Raises:
        ValueError: If the exit stops tokens one by one, or there is no loop to run.
    """
    if exit.level != "sequence":
        raise UserError(f"early exit stops whole sequences, not each {exit.level}; set the exit's level to 'sequence'")
    if loops < 1:
        raise UserError(f"early exit needs at least one loop, not {loops}")
    least = exit.threshold if threshold is None else threshold
    left = torch.arange(len(batch))
    depth = torch.zeros(len(batch), dtype=torch.int64)
    found: list[tuple[Tensor, Tensor]] = []
    part: TrajectoryView | None = None

    def stop(t: Trajectory, k: int) -> Tensor:
        nonlocal left, part
        part = TrajectoryView(t, last) if part is None else part
        part.reached = k
        ready = torch.full((len(left),), k == loops)
        if k < loops and least < math.inf:
            ready = (sequence_score(exit.score(part, k), part.batch) >= least).cpu()
        if ready.all():
            found.append((left, answer(part, k)))
        elif ready.any():
            found.append((left[ready], answer(part.narrow(ready), k)))
            part = part.narrow(~ready)
        depth[left[ready]] = k
        left = left[~ready]
        return depth > 0

    model.run(batch, Loops.fixed(loops), after_loop=stop)
    order = torch.cat([rows for rows, _ in found]).argsort().to(batch.device)
    return Exited(depth.to(batch.device), torch.cat([values for _, values in found])[order])
