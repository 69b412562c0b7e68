"""Where the norm sits around a sublayer ``f``, and how the sublayer joins the stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pydantic import PositiveFloat
from torch import Tensor, nn

from loopkit.components.norm import Norm
from loopkit.errors import UserError
from loopkit.loop import Step
from loopkit.registry import register


class Placement(nn.Module):
    """Wraps one sublayer; a block builds one for each.

    Wiring: ``norm`` (makes a norm of the stream's width), ``layer`` (number of the block in the whole model, from 0),
    ``max_loops`` (most loops in training) and ``num_layers`` (blocks of the core); the last two are 0 in prelude and
    coda, which run once. The result keeps the dtype of the stream, so that under bf16 autocast an fp32 stream stays
    fp32.
    """

    def forward(self, x: Tensor, f: Callable[[Tensor], Tensor], step: Step) -> Tensor:
        """Join the sublayer to the stream.

        Args:
            x: ``[B, T, D]``, the stream.
            f: The sublayer, ``[B, T, D]`` to the same shape, possibly in a narrower dtype; called exactly once.
            step: The loop in which the block runs.

        Returns:
            ``[B, T, D]`` in the dtype of ``x``.
        """
        raise NotImplementedError


@register("placement", "pre", paper="arXiv:2002.04745")
class Pre(Placement):
    """Normalise what the sublayer reads; the stream itself is never normalised, so its scale is free.

    x + f(N(x))
    """

    def __init__(self, norm: Callable[[], Norm]) -> None:
        super().__init__()
        self.norm = norm()

    def forward(self, x: Tensor, f: Callable[[Tensor], Tensor], step: Step) -> Tensor:
        return x + f(self.norm(x)).to(x.dtype)


@register("placement", "post", paper="arXiv:1706.03762")
class Post(Placement):
    """Normalise the stream after the sublayer joined it.

    N(x + f(x))
    """

    def __init__(self, norm: Callable[[], Norm]) -> None:
        super().__init__()
        self.norm = norm()

    def forward(self, x: Tensor, f: Callable[[Tensor], Tensor], step: Step) -> Tensor:
        return self.norm(x + f(x).to(x.dtype)).to(x.dtype)


@register("placement", "pre_sandwich", paper="arXiv:2510.25741")
class PreSandwich(Placement):
    """Normalise what the sublayer reads and what it adds (Ouro); the stream's scale is free.

    x + N2(f(N1(x)))
    """

    def __init__(self, norm: Callable[[], Norm]) -> None:
        super().__init__()
        self.norm_in = norm()
        self.norm_out = norm()

    def forward(self, x: Tensor, f: Callable[[Tensor], Tensor], step: Step) -> Tensor:
        return x + self.norm_out(f(self.norm_in(x))).to(x.dtype)


@register("placement", "post_sandwich", paper="arXiv:2502.05171")
class PostSandwich(Placement):
    """Normalise what the sublayer reads, and the stream after it joined (Huginn, STARS addition).

    N2(x + f(N1(x)))
    """

    def __init__(self, norm: Callable[[], Norm]) -> None:
        super().__init__()
        self.norm_in = norm()
        self.norm_out = norm()

    def forward(self, x: Tensor, f: Callable[[Tensor], Tensor], step: Step) -> Tensor:
        return self.norm_out(x + f(self.norm_in(x)).to(x.dtype)).to(x.dtype)


@register("placement", "deepnorm", paper="arXiv:2203.00555")
class DeepNorm(Placement):
    """Post-norm with a stream that weighs more than the sublayer.

    N(alpha * x + f(x)),   alpha = (2 * num_layers * max_loops)^(1/4)

    Args:
        alpha: Weight of the stream, dimensionless, > 0. ``None``: computed from the blocks that a token passes through
            in the core at the most loops in training; 1, which is plain post-norm, in prelude and coda.

    Paper: Its formula for models with an encoder or a decoder alone, whose depth is here that of the unrolled loop. Its
    initial gain of the sublayers, (8 * depth)^(-1/4), belongs to ``init`` and is not applied here.
    """

    def __init__(
        self,
        norm: Callable[[], Norm],
        max_loops: int | None = None,
        num_layers: int | None = None,
        *,
        alpha: PositiveFloat | None = None,
    ) -> None:
        super().__init__()
        self.norm = norm()
        if alpha is None:
            if max_loops is None or num_layers is None:
                raise UserError("placement deepnorm: the block around it passes no max_loops and num_layers; set alpha")
            alpha = max(2 * num_layers * max_loops, 1) ** 0.25
        self.alpha = alpha

    def forward(self, x: Tensor, f: Callable[[Tensor], Tensor], step: Step) -> Tensor:
        return self.norm(self.alpha * x + f(x).to(x.dtype)).to(x.dtype)


@register("placement", "pre_scaled", paper="arXiv:2606.18524")
class PreScaled(Placement):
    """Pre-norm with a residual branch that shrinks with the number of loops, because loops repeat the same update.

    x + eps * f(N(x)),   eps = gain * max_loops^(-1) * num_layers^(-1/2) in the core;   eps = 1 in prelude and coda

    Updates of shared weights add up over loops like equal vectors, and those of different layers like independent ones.
    The number of loops is that of the schedule, not of the pass, so an evaluation may run more of them.

    Args:
        gain: Factor of the branch, dimensionless, > 0; the paper's lambda.
        loops: Power of ``max_loops``: ``inverse`` is the paper's, ``inverse_sqrt`` that of unshared layers.
        layers: Power of ``num_layers``.
    """

    def __init__(
        self,
        norm: Callable[[], Norm],
        max_loops: int | None = None,
        num_layers: int | None = None,
        *,
        gain: PositiveFloat = 1.0,
        loops: Literal["inverse", "inverse_sqrt", "none"] = "inverse",
        layers: Literal["inverse_sqrt", "none"] = "inverse_sqrt",
    ) -> None:
        super().__init__()
        self.norm = norm()
        if max_loops is None or num_layers is None:
            raise UserError(
                "placement pre_scaled: the block around it passes no max_loops and num_layers; use placement pre"
            )
        power = {"inverse": -1.0, "inverse_sqrt": -0.5, "none": 0.0}
        in_core = max_loops > 0
        self.scale = gain * max_loops ** power[loops] * num_layers ** power[layers] if in_core else 1.0

    def forward(self, x: Tensor, f: Callable[[Tensor], Tensor], step: Step) -> Tensor:
        return x + self.scale * f(self.norm(x)).to(x.dtype)
