"""Error of rounded weights or states, by depth."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Le
from pydantic import PositiveInt
from torch import Tensor, nn

from loopkit.components.probe import Probe, ProbeResult, first_sequences, passes, token_vectors
from loopkit.loop import Batch, LoopedModelProtocol
from loopkit.registry import register

Bits = Annotated[int, Ge(2), Le(16)]


@register("probe", "rounding", figures={"rounding_error", "rounding_loss"})
class Rounding(Probe):
    """How far rounding to a few bits moves state and loss, and whether the error grows over loops.

        round(x) = s * [x / s],   s = max |x| / (2^(bits - 1) - 1),   [.] to the nearest integer
        rounding_error = mean over tokens of ||s'_k - s_k|| / ||s_k||, with s' of the rounded model
        rounding_loss = mean over scored tokens of the cross-entropy of s'_k less that of s_k       nats

    ``weights`` rounds every parameter with two or more dimensions, one scale for each row; ``state`` rounds the state
    after each loop, one scale for each token. An error that compounds grows faster than by a constant per loop. Makes
    passes of its own, and leaves the weights unchanged. Without figures under ZeRO stage 3, where ranks hold parts of
    the weights.

    Args:
        bits: Number of bits, 2 to 16.
        of: What is rounded.
        sequences: Sequences to measure.
    """

    def __init__(
        self, *, bits: Bits = 8, of: Literal["weights", "state"] = "weights", sequences: PositiveInt = 20
    ) -> None:
        self.bits = bits
        self.of = of
        self.sequences = sequences
        self.error: dict[int, float] = defaultdict(float)
        self.loss: dict[int, float] = defaultdict(float)
        self.tokens = self.scored = 0

    def run(self, model: LoopedModelProtocol, batches: Iterable[Batch], depths: Sequence[int]) -> None:
        assert isinstance(model, nn.Module)
        if any(parameter.numel() == 0 for parameter in model.parameters()):
            return
        intervene = None if self.of == "weights" else lambda s, k: round_rows(s, self.bits)
        for batch in first_sequences(batches, self.sequences):
            exact = {
                depth: (token_vectors(t.state(depth), batch), t.nll([depth], at=depth).double().sum().item())
                for t, served in passes(model, batch, depths)
                for depth in served
            }
            self.scored += int(batch.scored.sum())
            self.tokens += len(next(iter(exact.values()))[0])
            with rounded_weights(model, self.bits) if self.of == "weights" else nullcontext():
                for t, served in passes(model, batch, depths, intervene=intervene):
                    for depth in served:
                        state, loss = exact[depth]
                        change = (token_vectors(t.state(depth), batch) - state).norm(dim=-1)
                        norm = state.norm(dim=-1)
                        self.error[depth] += (change / norm.clamp(min=torch.finfo(norm.dtype).tiny)).sum().item()
                        self.loss[depth] += t.nll([depth], at=depth).double().sum().item() - loss

    def result(self) -> ProbeResult:
        what = f"{self.of} rounded to {self.bits} bits"
        return ProbeResult(
            by_depth={
                "rounding_error": {depth: total / self.tokens for depth, total in self.error.items()},
                "rounding_loss": {depth: total / self.scored for depth, total in self.loss.items() if self.scored},
            },
            units={
                "rounding_error": f"distance of the state with {what}, relative to its norm, mean over tokens",
                "rounding_loss": f"loss with {what} less the exact loss, nats per scored token",
            },
        )


def round_rows(x: Tensor, bits: int) -> Tensor:
    """Round to the nearest of ``2^bits - 1`` evenly spaced values, symmetric around 0, with a scale for each row.

    Shapes:
        x: ``[..., D]``, to the same shape and dtype.
    """
    largest = x.detach().abs().amax(dim=-1, keepdim=True)
    scale = torch.where(largest > 0, largest, 1.0) / (2 ** (bits - 1) - 1)
    return (x / scale).round() * scale


@contextmanager
def rounded_weights(model: nn.Module, bits: int) -> Iterator[None]:
    """Round the matrices of a model, and put the exact ones back at the end."""
    exact = {parameter: parameter.data for parameter in model.parameters() if parameter.dim() >= 2}
    try:
        for parameter, data in exact.items():
            parameter.data = round_rows(data, bits)
        yield
    finally:
        for parameter, data in exact.items():
            parameter.data = data
