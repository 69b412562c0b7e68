"""What of the state the head sees. Dims: B sequences, T tokens, D width."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from loopkit.components.norm import Norm
from loopkit.errors import UserError
from loopkit.loop import Tally, widen
from loopkit.registry import AtMost, Factory, Fraction, Share, register, use


class Readout(nn.Module):
    """Turns the coda's output into what the head sees. Wiring: ``width``, ``max_loops``.

    ``uses_total`` in the registration says that ``z_k`` of a loop that is not the last depends on which loop is: it
    matters where the readout is fed back. Buffers that follow the data are set in ``update_buffers`` from what
    ``observe`` added to a ``loopkit.loop.Tally``.
    """

    max_depth: int | None = None
    """Most loops it can read, where it has parameters per loop; any component of the loop may have this."""

    def forward(self, h: Tensor, k: int, at: int) -> Tensor:
        """``[B, T, D]`` at loop ``k``, as if loop ``at`` >= k were the last, to the same shape."""
        raise NotImplementedError

    def observe(self, h: Tensor, loop: Tensor) -> None:
        """Take note of a state, once per loop that is read in training.

        Args:
            h: ``[B, T, D]``, what ``forward`` is given.
            loop: ``[B, T]`` int64, which loop of its sequence this is for each token, from 1; 0: the token does not
                count, because it is padding or its sequence has not started.
        """


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


@register("readout", "final_only", paper="arXiv:2606.24898", uses_at=True)
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

    def follow(self, log_s: Tensor, decay: float) -> None:
        """Move towards a mean; the first replaces the initial value, and NaN, of no token, moves nothing.

        Without a branch, so that the host does not wait for the device.
        """
        log_s = log_s.to(self.log_s_ref.dtype)
        moved = torch.where(self.count == 0, log_s, self.log_s_ref * decay + log_s * (1 - decay))
        self.log_s_ref.copy_(torch.where(log_s.isnan(), self.log_s_ref, moved))
        self.count.add_(log_s.isnan().logical_not())


@register("readout", "alpha", paper="arXiv:2606.24898")
class AlphaReadout(Readout):
    """Between norm (alpha 0) and raw (alpha 1): keep a power of the state's scale.

    s = rms(h),   z = s_ref^(1 - alpha) * s^alpha * h / s

    Args:
        alpha: The exponent, 0 to 1. ``None``: learned, half-way between ``min`` and ``max`` at the start.
        min: Least learned exponent.
        max: Largest learned exponent.
        s_ref: Reference scale: ``ema`` follows the mean log scale of the states that are read in training, ``fixed``
            stays, or ``learned``.
        scale: Reference scale at the start, in units of the state, > 0; ``ema`` leaves it after the first step.
        decay: Share of the old value that ``ema`` keeps at each loop that is read.
        per_loop: Whether each loop has an exponent and reference of its own; the model then runs at most ``max_loops``.

    Paper: its code takes ``ema`` from the tokens of a forward pass and uses it in the same pass, so a later token moves
    an earlier logit, and the value depends on the micro-batch. Here it is taken from all tokens of an optimizer step,
    padding left out, loop after loop as there, and used from the next step on.
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
        self.decay = decay
        self.max_depth = max_loops if per_loop else None
        count = max_loops if per_loop else 1
        self.scales = nn.ModuleList(_Scale(learn_alpha=alpha is None, s_ref=s_ref, scale=scale) for _ in range(count))
        self.seen = Tally(max_loops) if s_ref == "ema" else None

    def forward(self, h: Tensor, k: int, at: int) -> Tensor:
        if self.max_depth is not None and not 1 <= k <= self.max_depth:
            raise UserError(f"readout alpha with per_loop has loops 1 to {self.max_depth}; loop {k} was asked for")
        scale = self._scale(k)
        h = widen(h)
        alpha = scale.alpha_logit.sigmoid() * (self.max - self.min) + self.min if self.alpha is None else self.alpha
        return h * ((1 - alpha) * (scale.log_s_ref - _log_rms(h))).exp()

    def observe(self, h: Tensor, loop: Tensor) -> None:
        if self.seen is not None:
            last = len(self.seen.sums)
            self.seen.add(_log_rms(widen(h)).squeeze(-1), loop > 0, loop.clamp(max=last) - 1)

    def update_buffers(self) -> None:
        """Follow the mean log scale of each loop, in order."""
        if self.seen is not None:
            for k, log_s in enumerate(self.seen.mean(), start=1):
                self._scale(k).follow(log_s, self.decay)

    def _scale(self, k: int) -> _Scale:
        scale = self.scales[0 if self.max_depth is None else k - 1]
        assert isinstance(scale, _Scale)
        return scale


def _log_rms(h: Tensor) -> Tensor:
    """Log of the root mean square over channels, ``[..., D]`` to ``[..., 1]``."""
    return h.square().mean(dim=-1, keepdim=True).clamp(min=1e-12).log() / 2
