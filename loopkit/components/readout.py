"""What of the state the head sees. Letters: B sequences, T tokens, D width."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from loopkit.components.norm import Norm
from loopkit.errors import UserError
from loopkit.loop import widen
from loopkit.registry import AtMost, Factory, Fraction, Share, register, use


class Readout(nn.Module):
    """Turns the coda's output into what the head sees. Wiring: ``width``, ``max_loops``.

    Buffers may change in training mode only. ``uses_total`` in the registration says that ``z_k`` of a loop that is not
    the last depends on which loop is: it matters where the readout is fed back.
    """

    max_depth: int | None = None
    """Most loops it can read, where it has parameters per loop; any component of the loop may have this."""

    def forward(self, h: Tensor, k: int, at: int) -> Tensor:
        """``[B, T, D]`` at loop ``k``, as if loop ``at`` >= k were the last, to the same shape."""
        raise NotImplementedError


@register("readout", "norm", scale_invariant=True)
class NormReadout(Readout):
    """Normalise every loop by one shared norm, so that the loss cannot see the state's scale.

    z = N(h)

    Args:
        norm: Which norm.
    """

    def __init__(self, width: int, *, norm: Factory[Norm] = use("rmsnorm")) -> None:
        super().__init__()
        self.norm = norm(width=width)

    def forward(self, h: Tensor, k: int, at: int) -> Tensor:
        return self.norm(h)


@register("readout", "raw", paper="arXiv:2606.24898")
class RawReadout(Readout):
    """The state itself, so that its scale is visible to every supervised loop.

    z = h
    """

    def __init__(self) -> None:
        super().__init__()

    def forward(self, h: Tensor, k: int, at: int) -> Tensor:
        return h


@register("readout", "final_only", paper="arXiv:2606.24898")
class FinalOnlyReadout(Readout):
    """Normalise the last loop alone.

    z_k = h_k for k < at,   z_at = N(h_at)

    Args:
        norm: Which norm.
    """

    def __init__(self, width: int, *, norm: Factory[Norm] = use("rmsnorm")) -> None:
        super().__init__()
        self.norm = norm(width=width)

    def forward(self, h: Tensor, k: int, at: int) -> Tensor:
        return self.norm(h) if k == at else h


class _Scale(nn.Module):
    """One exponent and one reference scale of the alpha readout."""

    alpha_logit: Tensor
    log_s_ref: Tensor
    count: Tensor

    def __init__(self, *, learn_alpha: bool, s_ref: str, scale: float) -> None:
        super().__init__()
        self.scale = scale
        if learn_alpha:
            self.alpha_logit = nn.Parameter(torch.empty(()))
        if s_ref == "learned":
            self.log_s_ref = nn.Parameter(torch.empty(()))
        else:
            self.register_buffer("log_s_ref", torch.empty(()))
        if s_ref == "ema":
            self.register_buffer("count", torch.empty((), dtype=torch.int64))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        for value in [*self.parameters(), *self.buffers()]:
            value.zero_()
        self.log_s_ref.fill_(math.log(self.scale))


@register("readout", "alpha", paper="arXiv:2606.24898", causal="evaluation")
class AlphaReadout(Readout):
    """Between norm (alpha 0) and raw (alpha 1): keep a power of the state's scale.

    s = rms(h),   z = s_ref^(1 - alpha) * s^alpha * h / s

    In training ``ema`` takes its scale from all tokens of the batch before it is used, so there a later token moves an
    earlier logit a little.

    Args:
        alpha: The exponent, 0 to 1. ``None``: learned, half-way between ``min`` and ``max`` at the start.
        min: Least learned exponent.
        max: Largest learned exponent.
        s_ref: Reference scale: ``ema`` follows the mean log scale at every readout in training, ``fixed`` stays, or
            ``learned``.
        scale: Reference scale at the start, in units of the state, > 0.
        decay: Share of the old value that ``ema`` keeps at each readout.
        per_loop: Whether each loop has an exponent and reference of its own; the model then runs at most ``max_loops``.
    """

    def __init__(
        self,
        max_loops: int,
        *,
        alpha: Share | None = None,
        min: Annotated[Share, AtMost("max")] = 0.0,
        max: Share = 1.0,
        s_ref: Literal["ema", "fixed", "learned"] = "ema",
        scale: PositiveFloat = 1.0,
        decay: Fraction = 0.99,
        per_loop: bool = False,
    ) -> None:
        super().__init__()
        self.alpha, self.min, self.max = alpha, min, max
        self.s_ref = s_ref
        self.decay = decay
        self.max_depth = max_loops if per_loop else None
        count = max_loops if per_loop else 1
        self.scales = nn.ModuleList(_Scale(learn_alpha=alpha is None, s_ref=s_ref, scale=scale) for _ in range(count))

    def forward(self, h: Tensor, k: int, at: int) -> Tensor:
        if self.max_depth is not None and not 1 <= k <= self.max_depth:
            raise UserError(f"readout alpha with per_loop has loops 1 to {self.max_depth}; loop {k} was asked for")
        scale = self.scales[0 if self.max_depth is None else k - 1]
        assert isinstance(scale, _Scale)
        h = widen(h)
        log_s = h.square().mean(dim=-1, keepdim=True).clamp(min=1e-12).log() / 2
        if self.s_ref == "ema" and self.training:
            self._follow(scale, log_s)
        alpha = scale.alpha_logit.sigmoid() * (self.max - self.min) + self.min if self.alpha is None else self.alpha
        return h * ((1 - alpha) * (scale.log_s_ref - log_s)).exp()

    @torch.no_grad()
    def _follow(self, scale: _Scale, log_s: Tensor) -> None:
        """The first value replaces the initial one, later ones move it; without a branch, so no host waits."""
        mean = log_s.mean().to(scale.log_s_ref.dtype)
        moved = scale.log_s_ref * self.decay + mean * (1 - self.decay)
        scale.log_s_ref.copy_(torch.where(scale.count == 0, mean, moved))
        scale.count.add_(1)
