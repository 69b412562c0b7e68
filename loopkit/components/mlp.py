"""The channel mixer of a block. Dims: B sequences, T tokens, D width."""

from __future__ import annotations

import torch.nn.functional as F
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn

from loopkit.loop import Step
from loopkit.registry import register


class Mlp(nn.Module):
    """Mixes the channels of each token. Wiring: ``width``, ``layer``, ``max_loops``.

    The output projection is called ``out``, because ``init: scaled`` selects it by that name.
    """

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """Mix channels.

        Args:
            x: ``[B, T, D]``, already normalised if the placement normalises inputs.
            step: The loop that this is part of.

        Returns:
            ``[B, T, D]``, which the placement adds to the stream.
        """
        raise NotImplementedError

    def roles(self) -> dict[str, tuple[nn.Linear, slice]]:
        """The matrix and output rows of ``gate``, ``up`` and ``down``; by default the submodules with these names.

        Adapters select matrices by these names; a variant without one of the matrices omits its name.
        """
        attributes = {"gate": "gate", "up": "up", "down": "out"}
        matrices = {role: getattr(self, name, None) for role, name in attributes.items()}
        return {
            role: (matrix, slice(0, matrix.out_features))
            for role, matrix in matrices.items()
            if isinstance(matrix, nn.Linear)
        }


def hidden_size(width: int, ratio: float, hidden: int | None) -> int:
    """Hidden channels: ``hidden``, or ``ratio`` times the width, rounded, if it is ``None``."""
    return round(ratio * width) if hidden is None else hidden


@register("mlp", "swiglu", paper="arXiv:2002.05202")
class SwiGLU(Mlp):
    """Gated unit with a SiLU gate: three matrices.

    W_out (silu(W_gate x) * W_up x)

    Args:
        ratio: Hidden channels, in units of the width, > 0.
        hidden: Hidden channels; overrides ``ratio``.
        bias: Whether the matrices have a bias.
    """

    def __init__(
        self,
        width: int,
        *,
        ratio: PositiveFloat = 4.0,
        hidden: PositiveInt | None = None,
        bias: bool = False,
    ) -> None:
        super().__init__()
        size = hidden_size(width, ratio, hidden)
        self.gate = nn.Linear(width, size, bias=bias)
        self.up = nn.Linear(width, size, bias=bias)
        self.out = nn.Linear(size, width, bias=bias)

    def forward(self, x: Tensor, step: Step) -> Tensor:
        return self.out(F.silu(self.gate(x)) * self.up(x))


class _TwoMatrices(Mlp):
    """Expand, apply an activation, contract."""

    def __init__(self, width: int, ratio: float, hidden: int | None, bias: bool) -> None:
        super().__init__()
        size = hidden_size(width, ratio, hidden)
        self.up = nn.Linear(width, size, bias=bias)
        self.out = nn.Linear(size, width, bias=bias)

    def activation(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor, step: Step) -> Tensor:
        return self.out(self.activation(self.up(x)))


@register("mlp", "gelu", paper="arXiv:1606.08415")
class Gelu(_TwoMatrices):
    """Two matrices around a GELU.

    W_out gelu(W_up x)

    Args:
        ratio: Hidden channels, in units of the width, > 0.
        hidden: Hidden channels; overrides ``ratio``.
        bias: Whether the matrices have a bias.
        exact: Whether to use the error function; otherwise its tanh approximation (GPT-2).
    """

    def __init__(
        self,
        width: int,
        *,
        ratio: PositiveFloat = 4.0,
        hidden: PositiveInt | None = None,
        bias: bool = False,
        exact: bool = True,
    ) -> None:
        super().__init__(width, ratio, hidden, bias)
        self.approximate = "none" if exact else "tanh"

    def activation(self, x: Tensor) -> Tensor:
        return F.gelu(x, approximate=self.approximate)


@register("mlp", "relu2", paper="arXiv:2109.08668")
class Relu2(_TwoMatrices):
    """Two matrices around a squared ReLU.

    W_out max(W_up x, 0)²

    Args:
        ratio: Hidden channels, in units of the width, > 0.
        hidden: Hidden channels; overrides ``ratio``.
        bias: Whether the matrices have a bias.
    """

    def __init__(
        self,
        width: int,
        *,
        ratio: PositiveFloat = 4.0,
        hidden: PositiveInt | None = None,
        bias: bool = False,
    ) -> None:
        super().__init__(width, ratio, hidden, bias)

    def activation(self, x: Tensor) -> Tensor:
        return F.relu(x).square()
