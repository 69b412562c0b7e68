"""What a trajectory, a probe, a task or an exit may ask of a model; ``loopkit.model`` implements it."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from loopkit.loop.batch import Batch
from loopkit.loop.cache import Cache
from loopkit.loop.loops import Loops

if TYPE_CHECKING:
    from loopkit.loop.trajectory import Trajectory


class _Every:
    """A container of everything."""

    def __contains__(self, item: object) -> bool:
        return True

    def __repr__(self) -> str:
        return "EVERY"


EVERY: Container[int] = _Every()
"""Keep the state of every loop."""


class LoopedModelProtocol(Protocol):
    """A looped language model.

    Attributes:
        width: Channels of the state.
        vocabulary: Number of tokens.
        max_length: Longest sequence.
        max_loops: Most loops in training.
        max_depth: Most loops the model can run at all; ``None``: any number.
        depth_free: No value inside the loop depends on the number of loops run, so one pass serves every depth.
        head: ``head(z)`` gives logits ``[..., V]``, ``head(z, labels)`` the negative log-likelihood ``[...]``.
        gate: ``gate(s, read, step)`` gives exit-gate logits ``[B, T]``.
        emit: What coda and readout see of a state, ``[B, T, *S, D] -> [B, T, D]``.
    """

    width: int
    vocabulary: int
    max_length: int
    max_loops: int
    max_depth: int | None
    depth_free: bool
    head: Any
    gate: Any
    training: bool

    def run(
        self,
        batch: Batch,
        loops: Loops,
        *,
        start: Tensor | None = None,
        intervene: Callable[[Tensor, int], Tensor] | None = None,
        keep: Container[int] = EVERY,
        stop: Callable[[Trajectory, int], Tensor] | None = None,
        noise_key: tuple[int, int] = (0, 0),
        cache: Cache | None = None,
    ) -> Trajectory:
        """One forward pass, readable at every loop."""
        ...

    def read(
        self,
        s: Tensor,
        k: int,
        at: int,
        dtype: torch.dtype | None = None,
        *,
        within: Trajectory | None = None,
        rows: Tensor | None = None,
    ) -> Tensor:
        """``z_k`` of any state, ``[B, T, D]``: coda, then readout, as if loop ``at`` were the last.

        Args:
            s: ``[B, T, *S, D]``.
            dtype: Compute in this precision; ``head`` follows that of ``z``. ``None``: as the model does.
            within: The pass that the state belongs to, for positions, noise and cache. ``None``: positions 0, 1, 2...
            rows: ``[b]`` int64, which sequences of the pass these are; ``None``: all.
        """
        ...

    def emit(self, s: Tensor) -> Tensor: ...

    def advance(self, trajectory: Trajectory, c: Tensor, k: int) -> Tensor:
        """``c -> c'`` through injection, core and carry of loop ``k``."""
        ...

    def carry_on(self, trajectory: Trajectory, s: Tensor, k: int) -> Tensor:
        """``c_k`` of a state."""
        ...
