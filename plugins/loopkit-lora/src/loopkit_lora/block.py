"""A shared block with low-rank updates for each loop. Dims: B sequences, T tokens, D width."""

from __future__ import annotations

import difflib
from typing import Annotated

from annotated_types import MinLen
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn

from loopkit.components.attention import Attention
from loopkit.components.block import Block
from loopkit.components.mlp import Mlp
from loopkit.components.position import Position
from loopkit.errors import UserError
from loopkit.loop import Step
from loopkit.registry import Factory, register, use
from loopkit_lora.matrix import CurrentLoop, PerLoopLinear


@register("block", "lora", paper="arXiv:2410.20672")
class Lora(Block):
    """A shared block with a low-rank update of some matrices for each loop.

    W_k = W + alpha / rank * B_k A_k,   B_k = 0 before training

    The model has parameters for the number of loops in training, so it cannot run more. In prelude and coda, where a
    block runs once, there are no updates.

    Args:
        base: The shared block.
        rank: Rank of each update.
        alpha: Factor on the updates, in units of the rank.
        targets: Roles of the matrices to update: q, k, v, o of an attention, and gate, up, down of an MLP.

    Raises:
        UserError: If the base has no matrix of a role, or the rank exceeds the size of one.

    Paper: It averages the layers of a pretrained model and initialises the updates from the residuals; here both are
    trained from scratch.
    """

    def __init__(
        self,
        width: int,
        position: Position,
        layer: int,
        max_loops: int,
        vocabulary: int | None = None,
        num_layers: int = 0,
        *,
        base: Factory[Block] = use("transformer"),
        rank: PositiveInt = 16,
        alpha: PositiveFloat = 32.0,
        targets: Annotated[tuple[str, ...], MinLen(1)] = ("q", "v"),
    ) -> None:
        super().__init__()
        depth = {"layer": layer, "max_loops": max_loops, "vocabulary": vocabulary, "num_layers": num_layers}
        self.base = base(width=width, position=position, **depth)
        self.max_depth = max_loops or None
        self._loop = CurrentLoop()
        available = matrices(self.base)
        for role in dict.fromkeys(targets):
            if role not in available:
                raise UserError(_unknown_role(role, list(available)))
            if max_loops == 0:
                continue
            for matrix, rows in available[role]:
                adapted = self._adapt(matrix)
                adapted.add(role, rows, rank=rank, loops=max_loops, scale=alpha / rank)
            available = matrices(self.base)  # _adapt replaces matrices

    def forward(self, x: Tensor, step: Step) -> Tensor:
        if self.max_depth is None:
            return self.base(x, step)
        if not 1 <= step.k <= self.max_depth:
            raise UserError(f"block 'lora' has parameters for loops 1 to {self.max_depth}; it cannot run loop {step.k}")
        self._loop.k = step.k
        return self.base(x, step)

    def _adapt(self, matrix: nn.Linear) -> PerLoopLinear:
        """Replace a matrix, wherever the base holds it, by one with updates for each loop."""
        if isinstance(matrix, PerLoopLinear) and matrix._loop is self._loop:
            return matrix
        if type(matrix) is not nn.Linear:
            raise UserError(f"block 'lora' can only update a plain nn.Linear, not a {type(matrix).__name__}")
        adapted = PerLoopLinear(matrix, self._loop)
        for name, module in list(self.base.named_modules(remove_duplicate=False)):
            if module is matrix:
                parent, _, leaf = name.rpartition(".")
                setattr(self.base.get_submodule(parent), leaf, adapted)
        return adapted


def matrices(block: nn.Module) -> dict[str, list[tuple[nn.Linear, slice]]]:
    """The matrices of a block and their rows, by role; several sublayers can have the same role."""
    by_role: dict[str, list[tuple[nn.Linear, slice]]] = {}
    for module in block.modules():
        if isinstance(module, Attention | Mlp):
            for role, matrix in module.roles().items():
                by_role.setdefault(role, []).append(matrix)
    return by_role


def _unknown_role(role: str, roles: list[str]) -> str:
    close = difflib.get_close_matches(role.lower(), roles, n=1)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return f"block 'lora': its base has no matrix with the role '{role}'; {hint}roles: {', '.join(roles) or 'none'}"
