"""The effect of removing the growth of the state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from pydantic import PositiveInt
from torch import Tensor

from loopkit.components.probe import Probe, ProbeResult, first_sequences, groups, passes, token_vectors
from loopkit.loop import Batch, LoopedModelProtocol
from loopkit.registry import register

Intervention = Callable[[Tensor, int], Tensor]


@register(
    "probe",
    "clamp",
    paper="arXiv:2606.24898",
    figures={"clamp_loss_change", "clamp_norm_ratio", "radial_removal_loss_change", "radial_removal_norm_ratio"},
)
class ClampProbe(Probe):
    """Change of loss and norm if the state cannot grow, relative to the unmodified run.

        clamp:          s_k <- s_k ||s_1|| / ||s_k||               for k > 1, token by token
        radial removal: s_k <- s_k - u <u, s_k - s_{k-1}>          for k > 1, u = s_{k-1} / ||s_{k-1}||

    Both act before readout and recurrence. Figures at depth k, with intervention relative to without:
    ``*_loss_change``, the difference of losses in nats per token; ``*_norm_ratio``, the ratio of mean token norms.
    Depth 1 is not changed. Makes three passes of its own.

    Args:
        sequences: Sequences to measure.

    Paper:
        arXiv:2606.24898, modes ``freeze_loop1`` and ``remove_radial`` of its code.
    """

    def __init__(self, *, sequences: PositiveInt = 160) -> None:
        self.sequences = sequences
        self.nll: dict[str, dict[int, float]] = {}
        self.norm: dict[str, dict[int, float]] = {}
        self.scored = 0

    def run(self, model: LoopedModelProtocol, batches: Iterable[Batch], depths: Sequence[int]) -> None:
        for batch in first_sequences(batches, self.sequences):
            self.scored += int(batch.scored.sum())
            for name, build_intervention in _ARMS.items():
                for group in groups(model, depths):  # an intervention has state, so each pass needs a new one
                    self._measure(name, model, batch, group, build_intervention())

    def _measure(
        self, name: str, model: LoopedModelProtocol, batch: Batch, depths: Sequence[int], intervene: Intervention | None
    ) -> None:
        nll, norm = self.nll.setdefault(name, {}), self.norm.setdefault(name, {})
        for t, served in passes(model, batch, depths, intervene):
            for depth in served:
                nll[depth] = nll.get(depth, 0.0) + t.nll([depth], at=depth).double().sum().item()
                norm[depth] = norm.get(depth, 0.0) + token_vectors(t.state(depth), batch).norm(dim=-1).sum().item()

    def result(self) -> ProbeResult:
        by_depth: dict[str, dict[int, float]] = {}
        for name in _ARMS:
            if name != "plain" and self.scored:
                plain, nll = self.nll["plain"], self.nll[name]
                by_depth[f"{name}_loss_change"] = {k: (nll[k] - plain[k]) / self.scored for k in nll}
                norms = self.norm["plain"]
                by_depth[f"{name}_norm_ratio"] = {k: self.norm[name][k] / norms[k] for k in nll if norms[k]}
        return ProbeResult(by_depth, units=_UNITS if by_depth else {})


_UNITS = {
    "clamp_loss_change": "loss with later states at the norm of loop 1, minus the loss without, nats per token",
    "clamp_norm_ratio": "mean state norm with over that without",
    "radial_removal_loss_change": "loss with no update along the state, minus the loss without, nats per token",
    "radial_removal_norm_ratio": "mean state norm with over that without",
}


def freeze_norm() -> Intervention:
    """Build an intervention that scales each later state to the token-wise norm of loop 1."""
    first: Tensor | None = None

    def intervene(s: Tensor, k: int) -> Tensor:
        nonlocal first
        if k == 1 or first is None:
            first = _norm(s)
            return s
        # keeps a zero state at zero
        return s * (first / _norm(s).clamp_min(torch.finfo(s.dtype).tiny))

    return intervene


def remove_radial() -> Intervention:
    """Build an intervention that removes the component of each later update along the state."""
    last: Tensor | None = None

    def intervene(s: Tensor, k: int) -> Tensor:
        nonlocal last
        if k > 1 and last is not None:
            u = last / _norm(last).clamp_min(torch.finfo(s.dtype).tiny)
            along = (u * (s - last)).flatten(2).sum(-1)
            s = s - u * along.view(*along.shape, *(1,) * (s.dim() - 2))
        last = s
        return s

    return intervene


def _norm(s: Tensor) -> Tensor:
    """Euclidean norm per token over streams and channels, shaped to multiply ``s``."""
    norm = s.flatten(2).norm(dim=-1)
    return norm.view(*norm.shape, *(1,) * (s.dim() - 2))


_ARMS: dict[str, Callable[[], Intervention | None]] = {
    "plain": lambda: None,
    "clamp": freeze_norm,
    "radial_removal": remove_radial,
}
