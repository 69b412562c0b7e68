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
    from loopkit.loop.step import Step
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
        reads_last_differently: The readout reads a loop differently when it is the last one.
        head: ``head(z)`` gives logits ``[..., V]``, ``head(z, labels)`` the negative log-likelihood ``[...]``.
        injection: ``injection(c, e, step)`` gives the input of the core.
        core: ``core(u, step)`` gives the state ``s_k``.
        carry: ``carry(s, read, step)`` gives the state that enters the next loop.
        gate: ``gate(s, read, step)`` gives exit-gate logits ``[B, T]``.
        emit: What coda and readout see of a state, ``[B, T, *S, D] -> [B, T, D]``.
    """

    width: int
    vocabulary: int
    max_length: int
    max_loops: int
    max_depth: int | None
    depth_free: bool
    reads_last_differently: bool
    head: Any
    injection: Any
    core: Any
    carry: Any
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
        after_loop: Callable[[Trajectory, int], Tensor | None] | None = None,
        noise_key: tuple[int, int] = (0, 0),
        cache: Cache | None = None,
    ) -> Trajectory:
        """Return one forward pass, readable at every loop."""
        ...

    def read(
        self,
        s: Tensor,
        k: int,
        step: Step,
        dtype: torch.dtype | None = None,
        own_loop: Tensor | None = None,
    ) -> Tensor:
        """``z_k``, ``[B, T, D]``: coda, then readout. ``Trajectory.read`` calls this with the step of its pass."""
        ...

    def emit(self, s: Tensor) -> Tensor: ...
