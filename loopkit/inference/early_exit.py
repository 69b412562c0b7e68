"""Early exit by sequence: later loops are computed only for the sequences that have not stopped.

Dims: B sequences, T tokens, V vocabulary.
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
from loopkit.loop import Batch, Cache, LoopedModelProtocol, Loops, Trajectory

Answer = Callable[[Trajectory, int], Tensor]
"""Computes the result of sequences that stop after loop k, ``[b, ...]``, from a view of only these sequences and k."""


@dataclass(frozen=True)
class Exited:
    """A batch run with early exit.

    Args:
        depth: ``[B]`` int64, loops that each sequence ran.
        answer: ``[B, ...]``, the result of each sequence at the loop where it stopped.
    """

    depth: Tensor
    answer: Tensor


def read_logits(t: Trajectory, k: int) -> Tensor:
    """Return the logits, ``[b, T, V]``."""
    return t.logits(k)


def read_nll(t: Trajectory, k: int) -> Tensor:
    """Return the negative log-likelihood of the labels, ``[b, T]`` in nats; 0 if a token is not scored."""
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
    cache: Cache | None = None,
    noise_key: tuple[int, int] = (0, 0),
) -> Exited:
    """Run a batch, and stop every sequence after the first loop whose score reaches the threshold.

        depth_b = min {k : C_bk >= threshold},  at most ``loops``          C_bk: mean score of the sequence's tokens

    A stopped sequence is neither computed nor scored any further: the core runs on the remaining rows, and the pass
    ends when none remains. The last loop stops the remaining sequences without a score. NaN scores never trigger an
    exit.

    Args:
        model: In evaluation mode.
        batch: On the model's device.
        exit: Scores the sequences.
        loops: Maximum number of loops, >= 1.
        threshold: Replaces the exit's own; minus infinity stops all sequences after the first loop, infinity none
            before the last, and then nothing is scored.
        last: The loop that counts as the last when loop k is read; ``None``: k itself.
        answer: Computes the result of stopped sequences.
        cache: Keys and values of earlier tokens; the batch then contains only the new tokens. A token is read after
            every loop that it runs, so that later tokens find it in a coda's slots of each of these loops.
        noise_key: (seed, optimizer step) of the random numbers.

    Raises:
        UserError: If ``loops`` is less than 1.
    """
    if loops < 1:
        raise UserError(f"early exit needs at least one loop, not {loops}")
    least = exit.threshold if threshold is None else threshold
    left = torch.arange(len(batch))
    depth = torch.zeros(len(batch), dtype=torch.int64)
    readings: list[tuple[Tensor, Tensor]] = []
    part: TrajectoryView | None = None

    def stop(t: Trajectory, k: int) -> Tensor:
        nonlocal left, part
        part = TrajectoryView(t, last) if part is None else part
        part.reached = k
        if cache is not None:
            part.readout(k)
        ready = torch.full((len(left),), k == loops)
        if k < loops and least < math.inf:
            ready = (sequence_score(exit.score(part, k), part.batch) >= least).cpu()
        if ready.all():
            readings.append((left, answer(part, k)))
        elif ready.any():
            readings.append((left[ready], answer(part.narrow(ready), k)))
            part = part.narrow(~ready)
        depth[left[ready]] = k
        left = left[~ready]
        return depth > 0

    model.run(batch, Loops.fixed(loops), after_loop=stop, cache=cache, noise_key=noise_key)
    order = torch.cat([rows for rows, _ in readings]).argsort().to(batch.device)
    return Exited(depth.to(batch.device), torch.cat([values for _, values in readings])[order])
