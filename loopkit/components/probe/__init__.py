"""The contract of a probe: a measurement at each depth, in addition to the tasks' figures.

A probe either observes the passes of the depth sweep (``observe``) or makes its own passes (``run``). It does not
change the model, does not draw random numbers, and accumulates sums in fp64.

Dims: B sequences, T tokens, D width, S streams of the state, if any.
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
"""A number, or several named numbers: ``{"mean": 20.1, "p99": 70.3}``."""


@dataclass(frozen=True)
class ProbeResult:
    """The figures of a probe.

    Args:
        by_depth: Values by name of the figure and depth, merged into ``depths[]`` of the result. Depths without a
            value are omitted, never zero.
        tables: JSON values that are not one figure per depth.
        units: Short definition and unit of each figure and table, by name.
    """

    by_depth: Mapping[str, Mapping[int, Figure]]
    tables: Mapping[str, Any] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)


class Probe(ABC):
    """A measurement of the state or its readout at each depth, built anew for every evaluation.

    Attributes:
        shareable: Whether ranks may observe different batches, whose results ``share`` combines; else one rank observes
            all batches.
    """

    shareable: bool = False

    def observe(self, t: Trajectory, depths: Sequence[int]) -> None:
        """Observe some depths of a pass of the sweep, without gradients; does nothing by default.

        Args:
            t: The pass, which may still be running; it keeps its states at ``depths``.
            depths: Depths to observe; each depth is observed once.
        """
        return

    def run(self, model: LoopedModelProtocol, batches: Iterable[Batch], depths: Sequence[int]) -> None:
        """Make passes of its own, without gradients; does nothing by default.

        Args:
            model: In evaluation mode.
            batches: The batches of the sweep, built lazily.
            depths: All depths of the evaluation.
        """
        return

    def share(self, depths: Sequence[int], gather: Callable[[Tensor], Tensor]) -> None:
        """Add the observations of the same probe on other ranks, so that ``result`` covers all batches.

        Args:
            depths: All depths of the evaluation; a rank without batches has observed none of them.
            gather: Concatenates a one-dimensional CPU tensor over ranks; a collective call.
        """
        raise NotImplementedError

    @abstractmethod
    def result(self) -> ProbeResult:
        """Return the figures, after the last call of ``observe`` and ``run``."""


def groups(model: LoopedModelProtocol, depths: Sequence[int]) -> list[list[int]]:
    """Group the depths by pass: one pass for all, or one per depth if the loop depends on its length."""
    return [sorted(depths)] if model.depth_free else [[depth] for depth in sorted(depths)]


def passes(
    model: LoopedModelProtocol,
    batch: Batch,
    depths: Sequence[int],
    intervene: Callable[[Tensor, int], Tensor] | None = None,
) -> Iterator[tuple[Trajectory, list[int]]]:
    """Run a batch at every depth: one pass for all, or one per depth if the loop depends on its length.

    Args:
        model: If it is ``depth_free``, a pass of 8 loops contains those of 1 to 7.
        batch: On the model's device.
        depths: Depths to read; only their states are kept.
        intervene: Changes the state after each loop, before readout and carry.

    Yields:
        Each pass with the depths to read from it.
    """
    for group in groups(model, depths):
        yield model.run(batch, Loops.fixed(group[-1]), keep=frozenset(group), intervene=intervene), group


def first_sequences(batches: Iterable[Batch], count: int) -> Iterator[Batch]:
    """Yield the first ``count`` sequences, for any batch size."""
    for batch in batches:
        if count <= 0:
            return
        yield batch.rows(slice(0, count)) if len(batch) > count else batch
        count -= len(batch)


def token_vectors(s: Tensor, batch: Batch) -> Tensor:
    """Return the states of all tokens except padding, with streams concatenated.

    Shapes:
        s: ``[B, T, *S, D]``; returns ``[N, S * D]`` in fp64, N tokens without padding.
    """
    real = batch.positions < PAD
    return s.detach().flatten(2)[real].double()


def nll(t: Trajectory, s: Tensor, k: int, at: int, dtype: torch.dtype) -> Tensor:
    """Compute the loss of a state that replaces that of loop ``k``, in a given precision.

    Args:
        t: The pass whose tokens and labels are scored.
        s: ``[B, T, *S, D]``.
        k: Loop whose readout is used.
        at: Loop that counts as the last.
        dtype: Precision of coda, readout, head and cross-entropy; autocast is disabled.

    Returns:
        ``[B, T]`` in nats, 0 for tokens that are not scored.
    """
    with torch.autocast(s.device.type, enabled=False):
        return t.score(t.read(s, k, at, dtype=dtype))
