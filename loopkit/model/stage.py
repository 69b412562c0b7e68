"""Prelude and coda: unshared blocks, and on the side that faces the loop a norm and a square matrix.

Dims: B sequences, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from torch import Tensor, nn

from loopkit.components.block import Block
from loopkit.components.norm import Norm
from loopkit.loop import Step


class _Stage(nn.Module):
    """The common part of prelude and coda.

    Args:
        blocks: In order; may be empty.
        norm: On the side that faces the loop, or ``None``.
        project: Width and initial value of a square matrix between norm and blocks; ``None``: no matrix.
    """

    no_decay: ClassVar[frozenset[str]] = frozenset({"project.weight"})

    def __init__(
        self,
        blocks: Sequence[Block],
        norm: Norm | None,
        project: tuple[int, Literal["identity", "orthogonal"]] | None = None,
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm
        self.project = None if project is None else nn.Linear(project[0], project[0], bias=False)
        self.first = None if project is None else project[1]

    def reset_parameters(self) -> None:
        """Initialise the matrix, which no ``init`` draws."""
        if self.project is not None and self.first == "identity":
            nn.init.eye_(self.project.weight)
        elif self.project is not None:
            nn.init.orthogonal_(self.project.weight)


class Prelude(_Stage):
    """Blocks, then the matrix, then the norm."""

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """``[B, T, D]`` to the same shape."""
        for block in self.blocks:
            x = block(x, step)
        if self.project is not None:
            x = self.project(x).to(x.dtype)
        return x if self.norm is None else self.norm(x).to(x.dtype)


class Coda(_Stage):
    """The norm, then the matrix, then blocks."""

    def forward(self, h: Tensor, step: Step) -> Tensor:
        """``[B, T, D]`` to the same shape."""
        if self.norm is not None:
            h = self.norm(h).to(h.dtype)
        if self.project is not None:
            h = self.project(h).to(h.dtype)
        for block in self.blocks:
            h = block(h, step)
        return h
