"""Thresholds of early exits, chosen from one full pass that records every loop's score and loss.

Dims: N sequences, K loops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from loopkit.components.exit import Exit, sequence_score
from loopkit.inference import TrajectoryView
from loopkit.loop import Batch, LoopedModelProtocol, Loops

NEVER = math.inf
"""The threshold that no sequence reaches before the last loop."""


@dataclass(frozen=True)
class ScoreTable:
    """Exit score and loss of every sequence at every loop.

    Args:
        tokens: ``[N]`` int64, scored tokens.
        nll: ``[N, K]`` fp64, negative log-likelihood summed over them, in nats.
        scores: ``[N, K - 1]`` fp64 of each exit, the score after each loop but the last.
    """

    tokens: Tensor
    nll: Tensor
    scores: Mapping[str, Tensor]

    def loss(self, depth_N: Tensor) -> float:
        """Return the loss in nats per token if every sequence stops at its depth."""
        total = self.nll.gather(1, depth_N[:, None] - 1).sum()
        return (total / self.tokens.sum()).item()


@dataclass(frozen=True)
class Trial:
    """The outcome of one threshold.

    Args:
        threshold: In units of the exit's score.
        average_loops: Mean over the sequences.
        loss: Nats per token.
    """

    threshold: float
    average_loops: float
    loss: float


@dataclass(frozen=True)
class Choice:
    """The chosen threshold, with the alternatives.

    Args:
        chosen: The trial with the fewest loops among those whose loss is within the bound.
        trials: All trials by increasing threshold; the last one is ``NEVER``.
        full_loss: Loss of all loops, in nats per token.
        loss_bound: Maximum acceptable loss.
    """

    chosen: Trial
    trials: tuple[Trial, ...]
    full_loss: float
    loss_bound: float


def tabulate(
    model: LoopedModelProtocol,
    batches: Iterable[Batch],
    exits: Mapping[str, Exit],
    loops: int,
    last: Callable[[int], int],
) -> ScoreTable:
    """Tabulate score and loss of every sequence at every loop, from one pass of ``loops`` core calls per batch.

    Args:
        model: In evaluation mode.
        batches: On the model's device.
        exits: Exits by name.
        loops: Maximum number of loops, K >= 2.
        last: The loop that counts as the last when loop k is read.
    """
    tokens: list[Tensor] = []
    nll: list[Tensor] = []
    scores: dict[str, list[Tensor]] = {name: [] for name in exits}
    with torch.no_grad():
        for batch in batches:
            t = TrajectoryView(model.run(batch, Loops.fixed(loops)), last)
            at_loop: dict[str, list[Tensor]] = {name: [] for name in exits}
            losses: list[Tensor] = []
            for k in range(1, loops + 1):
                if k < loops:
                    for name, exit in exits.items():
                        at_loop[name].append(sequence_score(exit.score(t, k), batch))
                losses.append(t.nll([k])[0].double().sum(dim=1))
            tokens.append(batch.scored.sum(dim=1).cpu())
            nll.append(torch.stack(losses, dim=1).cpu())
            for name, values in at_loop.items():
                scores[name].append(torch.stack(values, dim=1).double().cpu())
    return ScoreTable(torch.cat(tokens), torch.cat(nll), {name: torch.cat(parts) for name, parts in scores.items()})


def exit_depths(scores_NK: Tensor, threshold: float) -> Tensor:
    """Return the depth of each sequence: the first loop whose score reaches the threshold, or all loops.

    Shapes: ``[N, K - 1]`` to ``[N]`` int64 from 1 to K.
    """
    reached = torch.cat([scores_NK >= threshold, torch.ones(len(scores_NK), 1, dtype=torch.bool)], dim=1)
    return reached.int().argmax(dim=1) + 1


def choose(table: ScoreTable, name: str, *, tolerance: float = 0.01, thresholds: int = 51) -> Choice:
    """Choose, among quantiles of an exit's scores, the threshold with the fewest loops within the loss bound.

        minimise average loops   subject to   perplexity <= (1 + tolerance) * perplexity of all loops

    The quantiles are evenly spaced from the smallest to the largest finite score of all sequences and loops. ``NEVER``
    is always tried, so a choice always exists. Ties in the number of loops are broken by the smaller loss.

    Args:
        table: Scores and losses of the calibration slice.
        name: Name of the exit.
        tolerance: Acceptable relative increase of the perplexity.
        thresholds: Number of quantiles.

    Paper:
        arXiv:2606.24898, which uses 51 thresholds and a tolerance of one per cent.
    """
    scores = table.scores[name]
    count, loops = table.nll.shape
    finite = scores[scores.isfinite()]
    quantiles = torch.quantile(finite, torch.linspace(0, 1, thresholds, dtype=torch.float64)) if len(finite) else finite
    trials = []
    for threshold in [*sorted(set(quantiles.tolist())), NEVER]:
        stops = exit_depths(scores, threshold)
        trials.append(Trial(threshold, stops.double().mean().item(), table.loss(stops)))
    full = table.loss(torch.full((count,), loops))
    bound = full + math.log1p(tolerance)
    fitting = [trial for trial in trials if trial.loss <= bound]
    chosen = min(fitting or trials[-1:], key=lambda trial: (trial.average_loops, trial.loss))
    return Choice(chosen, tuple(trials), full, bound)
