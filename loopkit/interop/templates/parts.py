"""What joins the loops of a looped model. Dims: B sequences, T tokens, D width."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from loopkit.interop.templates.layers import NORMS, Options, build
from loopkit.interop.templates.noise import normal, uniform


class FromEmbedding(nn.Module):
    """c_0 = e."""

    def forward(self, e: Tensor, positions: Tensor, sample: Tensor) -> Tensor:
        return e


class Zeros(nn.Module):
    """c_0 = 0."""

    def forward(self, e: Tensor, positions: Tensor, sample: Tensor) -> Tensor:
        return torch.zeros_like(e)


class Normal(nn.Module):
    """c_0 ~ N(0, std²), truncated at ``truncate`` standard deviations; a function of sample, position and channel."""

    def __init__(self, *, std: float, truncate: float | None) -> None:
        super().__init__()
        self.std, self.truncate = std, truncate

    def forward(self, e: Tensor, positions: Tensor, sample: Tensor) -> Tensor:
        if self.truncate is None:
            return (self.std * normal(sample, positions, e.shape[-1])).to(e.dtype)
        kept = math.erf(self.truncate / math.sqrt(2))
        z = math.sqrt(2) * torch.erfinv(kept * (2 * uniform(sample, positions, e.shape[-1]) - 1))
        return (self.std * z).to(e.dtype)


STARTS: dict[str, Callable[..., nn.Module]] = {"embedding": FromEmbedding, "zeros": Zeros, "normal": Normal}


class NoInjection(nn.Module):
    """u = c."""

    def __init__(self, width: int) -> None:
        super().__init__()

    def forward(self, c: Tensor, e: Tensor) -> Tensor:
        return c


class Add(nn.Module):
    """u = N(c + e)."""

    def __init__(self, width: int, *, norm: Options | None) -> None:
        super().__init__()
        self.norm = None if norm is None else build(NORMS, norm, width)

    def forward(self, c: Tensor, e: Tensor) -> Tensor:
        return c + e if self.norm is None else self.norm(c + e).to(c.dtype)


class Concat(nn.Module):
    """u = W [c, e]."""

    def __init__(self, width: int, *, bias: bool, init: str) -> None:
        super().__init__()
        self.mix = nn.Linear(2 * width, width, bias=bias)

    def forward(self, c: Tensor, e: Tensor) -> Tensor:
        return self.mix(torch.cat([c, e], dim=-1)).to(c.dtype)


class Gated(nn.Module):
    """g = sigmoid(W [c, e] + b),   u = g * c + (1 - g) * e."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(2 * width, width)

    def forward(self, c: Tensor, e: Tensor) -> Tensor:
        g = self.gate(torch.cat([c, e], dim=-1)).sigmoid().to(c.dtype)
        return g * c + (1 - g) * e


class Diagonal(nn.Module):
    """d = softplus(b), r = exp(a),   u = exp(-d * r) * c + w * (W e)."""

    def __init__(self, width: int, *, decay: float, input: str) -> None:
        super().__init__()
        self.input = input
        self.log_rate = nn.Parameter(torch.zeros(width))
        self.step_size = nn.Parameter(torch.full((width,), math.log(math.expm1(-math.log(decay)))))
        self.mix = nn.Linear(width, width, bias=False)

    def forward(self, c: Tensor, e: Tensor) -> Tensor:
        d, rate = F.softplus(self.step_size), self.log_rate.exp()
        factor = d if self.input == "euler" else -torch.expm1(-d * rate) / rate
        return (torch.exp(-d * rate) * c + factor * self.mix(e).to(c.dtype)).to(c.dtype)


INJECTIONS: dict[str, Callable[..., nn.Module]] = {
    "none": NoInjection,
    "add": Add,
    "concat": Concat,
    "gate": Gated,
    "diagonal": Diagonal,
}


class Identity(nn.Module):
    """c = s.

    Attributes:
        reads: Whether it needs the readout of the loop.
    """

    reads = False

    def __init__(self, width: int) -> None:
        super().__init__()

    def forward(self, s: Tensor, read: Callable[[], Tensor]) -> Tensor:
        return s


class Normed(Identity):
    """c = N(s)."""

    def __init__(self, width: int, *, norm: Options) -> None:
        super().__init__(width)
        self.norm = build(NORMS, norm, width)

    def forward(self, s: Tensor, read: Callable[[], Tensor]) -> Tensor:
        return self.norm(s).to(s.dtype)


class FromReadout(Identity):
    """c = z, the input of the head."""

    reads = True

    def forward(self, s: Tensor, read: Callable[[], Tensor]) -> Tensor:
        return read().to(s.dtype)


class Clamp(Identity):
    """c = s * rms / rms(s), for all tokens or those ``above``."""

    def __init__(self, width: int, *, rms: float, side: str) -> None:
        super().__init__(width)
        self.rms, self.side = rms, side

    def forward(self, s: Tensor, read: Callable[[], Tensor]) -> Tensor:
        factor = self.rms / s.square().mean(dim=-1, keepdim=True).clamp(min=1e-12).sqrt()
        return s * (factor if self.side == "both" else factor.clamp(max=1.0))


class Damping(Identity):
    """c = sigmoid(a) * s."""

    def __init__(self, width: int, *, factor: float) -> None:
        super().__init__(width)
        self.logit = nn.Parameter(torch.tensor(math.log(factor / (1 - factor))))

    def forward(self, s: Tensor, read: Callable[[], Tensor]) -> Tensor:
        return s * self.logit.sigmoid()


class Chain(Identity):
    """One carry after another."""

    def __init__(self, width: int, *, of: list[Options]) -> None:
        super().__init__(width)
        self.of = nn.ModuleList(build(CARRIES, spec, width) for spec in of)
        self.reads = any(carry.reads for carry in self.of)

    def forward(self, s: Tensor, read: Callable[[], Tensor]) -> Tensor:
        for carry in self.of:
            s = carry(s, read)
        return s


CARRIES: dict[str, Callable[..., nn.Module]] = {
    "identity": Identity,
    "norm": Normed,
    "readout": FromReadout,
    "clamp": Clamp,
    "damping": Damping,
    "chain": Chain,
}


class RawReadout(nn.Module):
    """z = h."""

    def __init__(self, width: int, max_loops: int) -> None:
        super().__init__()

    def forward(self, h: Tensor, k: int, is_last: bool) -> Tensor:
        return h


class NormReadout(RawReadout):
    """z = N(h)."""

    def __init__(self, width: int, max_loops: int, *, norm: Options) -> None:
        super().__init__(width, max_loops)
        self.norm = build(NORMS, norm, width)

    def forward(self, h: Tensor, k: int, is_last: bool) -> Tensor:
        return self.norm(h)


class FinalOnlyReadout(NormReadout):
    """z = N(h) in the last loop, h before it."""

    def forward(self, h: Tensor, k: int, is_last: bool) -> Tensor:
        return self.norm(h) if is_last else h


class Scale(nn.Module):
    """Exponent and reference scale of the alpha readout."""

    def __init__(self, learn_alpha: bool, s_ref: str, scale: float) -> None:
        super().__init__()
        log_s_ref = torch.tensor(math.log(scale))
        self.alpha_logit = nn.Parameter(torch.zeros(())) if learn_alpha else None
        if s_ref == "learned":
            self.log_s_ref = nn.Parameter(log_s_ref)
        else:
            self.register_buffer("log_s_ref", log_s_ref)
        if s_ref == "ema":
            self.register_buffer("count", torch.zeros((), dtype=torch.int64))


class AlphaReadout(RawReadout):
    """z = s_ref^(1 - alpha) * s^alpha * h / s,   s = rms(h). The reference scale stays as loopkit trained it."""

    def __init__(
        self,
        width: int,
        max_loops: int,
        *,
        alpha: float | None,
        min: float,
        max: float,
        s_ref: str,
        scale: float,
        decay: float,
        per_loop: bool,
    ) -> None:
        super().__init__(width, max_loops)
        self.alpha, self.min, self.max = alpha, min, max
        self.scales = nn.ModuleList(Scale(alpha is None, s_ref, scale) for _ in range(max_loops if per_loop else 1))
        self.max_depth = max_loops if per_loop else None

    def forward(self, h: Tensor, k: int, is_last: bool) -> Tensor:
        scale: Any = self.scales[0 if self.max_depth is None else k - 1]
        h = h if h.dtype == torch.float64 else h.float()
        alpha = scale.alpha_logit.sigmoid() * (self.max - self.min) + self.min if self.alpha is None else self.alpha
        log_rms = h.square().mean(dim=-1, keepdim=True).clamp(min=1e-12).log() / 2
        return h * ((1 - alpha) * (scale.log_s_ref - log_rms)).exp()


READOUTS: dict[str, Callable[..., nn.Module]] = {
    "raw": RawReadout,
    "norm": NormReadout,
    "final_only": FinalOnlyReadout,
    "alpha": AlphaReadout,
}


class LinearGate(nn.Module):
    """The trained exit gate; its weights are kept, and every forward pass runs all loops."""

    def __init__(self, width: int, *, reads: str) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 1)


GATES: dict[str, Callable[..., nn.Module | None]] = {"none": lambda width: None, "linear": LinearGate}
