"""The channel mixer of a block. Letters: B sequences, T tokens, D width."""

from __future__ import annotations

import torch.nn.functional as F
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn

from loopkit.loop import Step
from loopkit.registry import register


class Mlp(nn.Module):
    """Mixes the channels of each token. Wiring: ``width``, ``layer``, ``max_loops``.

    The projection back into the stream is called ``out``: ``init: scaled`` finds it by that name.
    """

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """``[B, T, D]`` to the same shape."""
        raise NotImplementedError

    def roles(self) -> dict[str, tuple[nn.Linear, slice]]:
        """Which output rows of which matrix are ``gate``, ``up`` and ``down``; here those that have these names.

        Adapters find what they change by these names; a variant without such a matrix leaves its name out.
        """
        names = {"gate": "gate", "up": "up", "down": "out"}
        found = {role: getattr(self, name, None) for role, name in names.items()}
        return {
            role: (part, slice(0, part.out_features)) for role, part in found.items() if isinstance(part, nn.Linear)
        }


def hidden_size(width: int, ratio: float, hidden: int | None) -> int:
    """Channels inside: as given, or ``ratio`` times the width, rounded."""
    return round(ratio * width) if hidden is None else hidden


@register("mlp", "swiglu", paper="arXiv:2002.05202")
class SwiGLU(Mlp):
    """Gated unit with a SiLU gate: three matrices.

    W_out (silu(W_gate x) * W_up x)

    Args:
        ratio: Channels inside, in units of the width, > 0.
        hidden: Channels inside; overrides ``ratio``.
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
        inside = hidden_size(width, ratio, hidden)
        self.gate = nn.Linear(width, inside, bias=bias)
        self.up = nn.Linear(width, inside, bias=bias)
        self.out = nn.Linear(inside, width, bias=bias)

    def forward(self, x: Tensor, step: Step) -> Tensor:
        return self.out(F.silu(self.gate(x)) * self.up(x))


class _TwoMatrices(Mlp):
    """Expand, bend, contract."""

    def __init__(self, width: int, ratio: float, hidden: int | None, bias: bool) -> None:
        super().__init__()
        inside = hidden_size(width, ratio, hidden)
        self.up = nn.Linear(width, inside, bias=bias)
        self.out = nn.Linear(inside, width, bias=bias)

    def activation(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor, step: Step) -> Tensor:
        return self.out(self.activation(self.up(x)))


@register("mlp", "gelu", paper="arXiv:1606.08415")
class Gelu(_TwoMatrices):
    """Two matrices around a GELU.

    W_out gelu(W_up x)

    Args:
        ratio: Channels inside, in units of the width, > 0.
        hidden: Channels inside; overrides ``ratio``.
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
        ratio: Channels inside, in units of the width, > 0.
        hidden: Channels inside; overrides ``ratio``.
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
