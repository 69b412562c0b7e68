"""A shared block that may differ a little in each loop. Letters: B sequences, T tokens, D width."""

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
from loopkit.loop import Step
from loopkit.registry import Factory, register, use
from loopkit_lora.matrix import Loop, PerLoopLinear


@register("block", "lora", paper="arXiv:2410.20672")
class Lora(Block):
    """A shared block, some of whose matrices differ from loop to loop by a matrix of low rank.

    W_k = W + alpha / rank * B_k A_k,   B_k = 0 before training

    The model then has parameters for as many loops as training runs, and no more. In prelude and coda, where a block
    runs once, it is its base and nothing else.

    Args:
        base: The shared block.
        rank: Rank of each difference.
        alpha: Factor on the differences, in units of the rank.
        targets: Roles of the matrices that differ, as the base's attention (q, k, v, o) and MLP (gate, up, down) name
            them.

    Raises:
        ValueError: If the base has no matrix of a role, or one that is smaller than the rank.

    Paper: It begins at a pretrained model whose layers it averages, and its differences at what the average lost; here
    both are trained from the first step.
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
        place = {"layer": layer, "max_loops": max_loops, "vocabulary": vocabulary, "num_layers": num_layers}
        self.base = base(width=width, position=position, **place)
        self.max_depth = max_loops or None
        self._loop = Loop()
        known = matrices(self.base)
        for role in dict.fromkeys(targets):
            if role not in known:
                raise ValueError(_unknown(role, list(known)))
            if max_loops == 0:
                continue
            for matrix, rows in known[role]:
                adapted = self._adapt(matrix)
                adapted.add(role, rows, rank=rank, loops=max_loops, scale=alpha / rank)
            known = matrices(self.base)  # a matrix that now differs has been exchanged

    def forward(self, x: Tensor, step: Step) -> Tensor:
        if self.max_depth is None:
            return self.base(x, step)
        if not 1 <= step.k <= self.max_depth:
            raise ValueError(
                f"block 'lora' has parameters for loops 1 to {self.max_depth}; loop {step.k} was asked for"
            )
        self._loop.k = step.k
        return self.base(x, step)

    def _adapt(self, matrix: nn.Linear) -> PerLoopLinear:
        """The matrix, exchanged wherever the base holds it for one that can differ."""
        if isinstance(matrix, PerLoopLinear) and matrix._loop is self._loop:
            return matrix
        if type(matrix) is not nn.Linear:
            raise ValueError(f"block 'lora': it can add to a plain linear layer, not to a {type(matrix).__name__}")
        adapted = PerLoopLinear(matrix, self._loop)
        for name, part in list(self.base.named_modules(remove_duplicate=False)):
            if part is matrix:
                parent, _, leaf = name.rpartition(".")
                setattr(self.base.get_submodule(parent), leaf, adapted)
        return adapted


def matrices(block: nn.Module) -> dict[str, list[tuple[nn.Linear, slice]]]:
    """Matrices and rows of a block by role; a role that several sublayers play has several."""
    found: dict[str, list[tuple[nn.Linear, slice]]] = {}
    for part in block.modules():
        if isinstance(part, Attention | Mlp):
            for role, matrix in part.roles().items():
                found.setdefault(role, []).append(matrix)
    return found


def _unknown(role: str, known: list[str]) -> str:
    close = difflib.get_close_matches(role.lower(), known, n=1)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return f"block 'lora': its base has no matrix with the role '{role}'; {hint}roles: {', '.join(known) or 'none'}"
