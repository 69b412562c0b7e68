"""Predictions of every loop beside those of the last one. Dims: T tokens, D width, V vocabulary."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import torch
from pydantic import PositiveInt
from torch import Tensor

from loopkit.components.probe import Probe, ProbeResult, first_sequences, passes
from loopkit.loop import Batch, LoopedModelProtocol
from loopkit.registry import register

FIGURES = {
    "lens_agreement": "share of scored tokens whose most likely next token is that of the deepest depth, 0 to 1",
    "lens_kl": "KL divergence of the prediction from that of the deepest depth, nats per scored token",
    "lens_entropy": "entropy of the prediction, nats per scored token",
}


@register("probe", "logit_lens", figures={"lens_agreement", "lens_kl", "lens_entropy"})
class LogitLens(Probe):
    """How far each loop has settled on the prediction of the deepest depth that is evaluated.

        p_k = softmax of the logits of loop k, read as the last;   K the deepest depth
        lens_agreement = share of tokens with argmax p_k = argmax p_K
        lens_kl = mean over tokens of KL(p_K || p_k)                                   nats
        lens_entropy = mean over tokens of the entropy of p_k                          nats

    Means are over scored tokens. The logits of one sequence are held at a time. Makes passes of its own.

    Args:
        sequences: Sequences to measure.
    """

    def __init__(self, *, sequences: PositiveInt = 20) -> None:
        self.sequences = sequences
        self.sums: dict[str, dict[int, float]] = {name: defaultdict(float) for name in FIGURES}
        self.scored = 0

    def run(self, model: LoopedModelProtocol, batches: Iterable[Batch], depths: Sequence[int]) -> None:
        for batch in first_sequences(batches, self.sequences):
            self.scored += int(batch.scored.sum())
            readouts = {
                depth: t.readout(depth, at=depth) for t, served in passes(model, batch, depths) for depth in served
            }
            for row in range(len(batch)):
                scored_T = batch.scored[row]
                z = {depth: readout[row][scored_T] for depth, readout in readouts.items()}
                last_TV = model.head(z[max(depths)]).log_softmax(dim=-1)
                for depth, z_TD in z.items():
                    for name, total in _compare(model.head(z_TD).log_softmax(dim=-1), last_TV):
                        self.sums[name][depth] += total

    def result(self) -> ProbeResult:
        if not self.scored:
            return ProbeResult({})
        means = {name: {depth: s / self.scored for depth, s in sums.items()} for name, sums in self.sums.items()}
        return ProbeResult(means, units=FIGURES)


def _compare(log_p_TV: Tensor, last_TV: Tensor) -> Iterator[tuple[str, float]]:
    """Yield each figure of one sequence, summed over its tokens."""
    p_TV = log_p_TV.exp()
    yield "lens_agreement", float((log_p_TV.argmax(dim=-1) == last_TV.argmax(dim=-1)).sum())
    kl_T = torch.where(last_TV.isneginf(), 0.0, last_TV.exp() * (last_TV - log_p_TV)).sum(dim=-1)
    yield "lens_kl", kl_T.double().sum().item()
    yield "lens_entropy", torch.special.entr(p_TV).sum(dim=-1).double().sum().item()
