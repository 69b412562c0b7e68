"""The learned exit gate. Letters: B sequences, T tokens, D width."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from loopkit.errors import UserError
from loopkit.loop import Step, widen
from loopkit.registry import register


class Gate(nn.Module):
    """Says how ready each token is to stop. Wiring: ``width``."""

    def forward(self, s: Tensor, read: Callable[[], Tensor], step: Step) -> Tensor:
        """What the core emits of the state, ``[B, T, D]``, to exit logits ``[B, T]``; ``read()`` gives ``z_k``."""
        raise NotImplementedError


@register("gate", "none")
class NoGate(Gate):
    """The model has no gate; asking it for one is an error."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, s: Tensor, read: Callable[[], Tensor], step: Step) -> Tensor:
        raise UserError("this model has no exit gate; set model.gate, for instance to 'linear'")


@register("gate", "linear", paper="arXiv:2510.25741", provides={"gate"})
class LinearGate(Gate):
    """One linear map to a logit.

    g_k = w · h_k + b,   exit probability sigmoid(g_k)

    Args:
        reads: ``state`` reads the raw state, ``readout`` what the head sees (Ouro).
    """

    def __init__(self, width: int, *, reads: Literal["state", "readout"] = "state") -> None:
        super().__init__()
        self.reads = reads
        self.linear = nn.Linear(width, 1)

    def forward(self, s: Tensor, read: Callable[[], Tensor], step: Step) -> Tensor:
        return widen(self.linear(s if self.reads == "state" else read()).squeeze(-1))
