"""What is measured at each depth, beyond the tasks' figures: the contract.

A probe either rides on the passes of the depth sweep (``observe``) or makes passes of its own (``run``). It never
changes the model, draws no random numbers, and forms its sums in fp64.

Letters: B sequences, T tokens, D width, S any further streams of the state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from loopkit.loop import PAD, Batch, LoopedModelProtocol, Loops, Trajectory

Figure = float | Mapping[str, float]
"""A number, or several under names of their own: ``{"mean": 20.1, "p99": 70.3}``."""


@dataclass(frozen=True)
class ProbeResult:
    """What a probe found.

    Args:
        by_depth: Name of a figure to its values by depth, merged into ``depths[]`` of the result. A depth without a
            value is left out: absent, never zero.
        tables: Anything that is not one figure per depth, ready for JSON.
        units: Name of each figure and table to its definition and unit, in a few words.
    """

    by_depth: Mapping[str, Mapping[int, Figure]]
    tables: Mapping[str, Any] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)


class Probe(ABC):
    """A measurement of the state or its readout at each depth. A fresh one is built for every evaluation.

    Attributes:
        shareable: Whether several ranks may each observe a part of the batches, which ``share`` then joins. Where not,
            one rank sees them all.
    """

    shareable: bool = False

    def observe(self, t: Trajectory, depths: Sequence[int]) -> None:
        """Look at some depths of a pass of the sweep, without gradient; does nothing unless overridden.

        Args:
            t: The pass, which may still be running; its states at ``depths`` are kept, others may not be.
            depths: Depths to look at, each of them once.
        """
        return

    def run(self, model: LoopedModelProtocol, batches: Iterable[Batch], depths: Sequence[int]) -> None:
        """Make passes of its own, without gradient; does nothing unless overridden.

        Args:
            model: In evaluation mode.
            batches: The batches of the sweep; taking none costs nothing.
            depths: All depths of the evaluation.
        """
        return

    def share(self, depths: Sequence[int], gather: Callable[[Tensor], Tensor]) -> None:
        """Take in what the same probe observed on other ranks, so that ``result`` is that of all batches.

        Args:
            depths: All depths of the evaluation; a rank without batches has observed none of them.
            gather: Joins a one-dimensional CPU tensor over ranks. All ranks call it equally often.
        """
        raise NotImplementedError

    @abstractmethod
    def result(self) -> ProbeResult:
        """Everything found, after the last call of ``observe`` and ``run``."""


def groups(model: LoopedModelProtocol, depths: Sequence[int]) -> list[list[int]]:
    """The depths that one pass serves: all of them, or one each where the loop depends on its length."""
    return [sorted(depths)] if model.depth_free else [[depth] for depth in sorted(depths)]


def passes(
    model: LoopedModelProtocol,
    batch: Batch,
    depths: Sequence[int],
    intervene: Callable[[Tensor, int], Tensor] | None = None,
) -> Iterator[tuple[Trajectory, list[int]]]:
    """Run a batch so that every depth can be read: one pass for all, or one each where the loop depends on its length.

    Args:
        model: Its ``depth_free`` says whether a pass of 8 loops holds those of 1 to 7.
        batch: On the model's device.
        depths: Depths to be read; only their states are kept.
        intervene: Changes the state after each loop, before readout and carry.

    Returns:
        Each pass with the depths it serves.
    """
    for group in groups(model, depths):
        yield model.run(batch, Loops.fixed(group[-1]), keep=frozenset(group), intervene=intervene), group


def first_sequences(batches: Iterable[Batch], count: int) -> Iterator[Batch]:
    """The first ``count`` sequences, whatever the batch size."""
    for batch in batches:
        if count <= 0:
            return
        yield batch.rows(slice(0, count)) if len(batch) > count else batch
        count -= len(batch)


def token_vectors(s: Tensor, batch: Batch) -> Tensor:
    """The states of all real tokens, streams joined.

    Shapes:
        s: ``[B, T, *S, D]``; returns ``[N, S * D]`` in fp64, N the number of tokens that are not padding.
    """
    real = batch.positions < PAD
    return s.detach().flatten(2)[real].double()


def nll(t: Trajectory, s: Tensor, k: int, at: int, dtype: torch.dtype) -> Tensor:
    """What any state would cost, read in place of loop ``k``'s in a given arithmetic.

    Args:
        t: The pass whose tokens and labels are scored.
        s: ``[B, T, *S, D]``.
        k: Loop as which it is read.
        at: Loop that counts as the last.
        dtype: Arithmetic of coda, readout, head and cross-entropy, whatever autocast says.

    Returns:
        ``[B, T]`` in nats, 0 where a token is not scored.
    """
    with torch.autocast(s.device.type, enabled=False):
        return t.score(t.read(s, k, at, dtype=dtype))
