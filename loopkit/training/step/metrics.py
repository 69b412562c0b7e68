"""Metrics of an optimizer step, collected from its micro-steps with one transfer from the device."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from loopkit.loop import PAD, Batch, Loops
from loopkit.training.distributed.process_group import Process


@dataclass(frozen=True)
class MicroStepMetrics:
    """Metrics of one micro-step, on the device.

    Args:
        names: ``loss``, ``ce/K``, ``state_norm/K``, ``regularizers/NAME`` and ``terms/NAME``; if the gate may end
            sequences, also ``depth``, ``tokens/K`` and ``scored/K``, which replace the counts known in advance.
        values: fp32, one for each name.
    """

    names: tuple[str, ...]
    values: Tensor


@dataclass(frozen=True)
class Counts:
    """Token counts of a micro-step, computed on the host.

    Args:
        tokens: Real tokens.
        scored: Scored tokens.
        tokens_by_loop: Real tokens of the sequences that ran each loop.
        scored_by_loop: Scored tokens of the sequences that ran each loop.
    """

    tokens: int
    scored: int
    tokens_by_loop: tuple[int, ...]
    scored_by_loop: tuple[int, ...]

    @classmethod
    def of(cls, batch: Batch, loops: Loops) -> Counts:
        """Count the tokens of a batch on the CPU."""
        tokens_B, scored_B = (batch.positions < PAD).sum(dim=1), batch.scored.sum(dim=1)
        first_B = torch.ones_like(tokens_B)
        if loops.per_sequence is not None:  # sequences of fewer loops start later, so that all end together
            first_B = loops.total - loops.per_sequence + 1
        ran_KB = torch.arange(1, loops.total + 1)[:, None] >= first_B
        return cls(
            tokens=int(tokens_B.sum()),
            scored=int(scored_B.sum()),
            tokens_by_loop=tuple((ran_KB * tokens_B).sum(dim=1).tolist()),
            scored_by_loop=tuple((ran_KB * scored_B).sum(dim=1).tolist()),
        )


@dataclass
class StepMetrics:
    """Average the metrics of the micro-steps of one optimizer step.

    Per-loop cross-entropy is averaged over scored tokens, state norms over real tokens, of the sequences that ran the
    loop, terms of the supervision over scored tokens, and everything else over micro-steps. The averages equal those
    of one pass over the whole batch.

    Args:
        shift: Whether the loops of micro-steps with fewer loops count as the last loops of the step, as they do if
            loops are drawn per sequence. Otherwise they count as the first.
    """

    shift: bool = False
    parts: list[tuple[MicroStepMetrics, Counts]] = field(default_factory=list)

    def add(self, metrics: MicroStepMetrics, counts: Counts) -> None:
        """Add a micro-step, without waiting for the device."""
        self.parts.append((metrics, counts))

    @property
    def tokens(self) -> int:
        """Real tokens of the micro-steps added, on this rank."""
        return sum(counts.tokens for _, counts in self.parts)

    def read(self, process: Process, grad_norm: Tensor | None) -> StepValues:
        """Transfer the metrics to the host and average them over all ranks; this waits for the device once.

        Args:
            process: This rank.
            grad_norm: Global norm of the gradient, if it is already computed.
        """
        tensors = [metrics.values for metrics, _ in self.parts]
        if grad_norm is not None:
            tensors.append(grad_norm.detach().float().reshape(1))
        numbers = iter(torch.cat(tensors).tolist())
        sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        max_loops = max(len(counts.tokens_by_loop) for _, counts in self.parts)
        for metrics, counts in self.parts:
            offset = max_loops - len(counts.tokens_by_loop) if self.shift else 0
            values = {name: next(numbers) for name in metrics.names}
            for name, value in values.items():
                weight: float = 1
                what, _, loop = name.partition("/")
                if what in ("tokens", "scored"):
                    continue
                if what in ("ce", "state_norm"):
                    counted, by_loop = (
                        ("scored", counts.scored_by_loop) if what == "ce" else ("tokens", counts.tokens_by_loop)
                    )
                    weight = values.get(f"{counted}/{loop}", by_loop[int(loop) - 1])
                    name = f"{what}/{int(loop) + offset}"
                elif what == "terms":
                    weight = counts.scored
                sums[name][0] += weight * value if weight else 0.0
                sums[name][1] += weight
        norm = next(numbers, None)
        # all ranks run the same loops, so their metrics have the same names
        names = sorted(sums)
        is_faulty = norm is not None and not math.isfinite(norm)
        *flat, num_faulty = process.sum([number for name in names for number in sums[name]] + [float(is_faulty)])
        means = {name: _ratio(*flat[2 * i : 2 * i + 2]) for i, name in enumerate(names)}
        return StepValues(means, norm if is_faulty or not num_faulty else math.nan)


def _ratio(total: float, weight: float) -> float | None:
    return total / weight if weight else None


@dataclass
class StepValues:
    """Metrics of an optimizer step as plain numbers.

    Args:
        means: By the names of ``MicroStepMetrics``; None if no token was scored.
        grad_norm: Global norm of the gradient before clipping; not finite on all ranks if it is not finite on one.
    """

    means: dict[str, float | None]
    grad_norm: float | None

    @property
    def loss(self) -> float:
        """The loss that is minimised."""
        loss = self.means["loss"]
        assert loss is not None
        return loss

    @property
    def regularizers(self) -> dict[str, float | None]:
        """Unweighted values by name."""
        return self._named("regularizers/")

    @property
    def terms(self) -> dict[str, float | None]:
        """Other metrics of the supervision by name."""
        return self._named("terms/")

    def _named(self, prefix: str) -> dict[str, float | None]:
        return {name.removeprefix(prefix): value for name, value in self.means.items() if name.startswith(prefix)}

    def by_loop(self, what: str, total: int) -> list[float | None]:
        """``ce`` or ``state_norm`` of loops 1 .. total; None if it was not measured."""
        return [self.means.get(f"{what}/{k}") for k in range(1, total + 1)]

    def largest_state(self) -> tuple[int, float]:
        """The loop with the largest mean state norm, and the norm; zeros if no state was measured."""
        norms = [(value, k) for k in range(1, self._loops() + 1) if (value := self.means.get(f"state_norm/{k}"))]
        value, k = max(norms, default=(0.0, 0))
        return k, value

    def fault(self) -> tuple[str, float] | None:
        """The first value that is not finite in order of computation, as description and value; None if all are."""
        for k in range(1, self._loops() + 1):
            for what, label in (("state_norm", "the state"), ("ce", "the cross-entropy")):
                value = self.means.get(f"{what}/{k}")
                if value is not None and not math.isfinite(value):
                    return f"{label} of loop {k} is {value}", value
        named = [(f"the regularizer {name}", value) for name, value in self.regularizers.items()]
        named += [(f"the term {name}", value) for name, value in self.terms.items()]
        for label, value in [*named, ("the loss", self.loss), ("the gradient's norm", self.grad_norm)]:
            if value is not None and not math.isfinite(value):
                return f"{label} is {value}", value
        return None

    def _loops(self) -> int:
        by_loop = [name.partition("/") for name in self.means]
        return max((int(loop) for what, _, loop in by_loop if what in ("state_norm", "ce")), default=0)


def metrics_record(
    values: StepValues,
    *,
    step: int,
    total: int,
    loops_mean: float,
    backprop: int,
    lr: float,
    grad_norm: float | None,
    tokens: int,
    flops: float | None,
    throughput: Mapping[str, Any],
    batch_sha: str,
) -> dict[str, Any]:
    """Return a line of ``metrics.jsonl``.

    Args:
        values: Metrics of the step.
        step: Optimizer steps done, this one included.
        total: Most core calls of a micro-step.
        loops_mean: Mean number of loops of a sequence, if ``values`` does not contain it.
        backprop: Most loops that carry gradient.
        lr: Learning rate of the step.
        grad_norm: Global norm of the gradient before clipping, if ``values`` does not contain it.
        tokens: Real tokens trained on since the start of the run.
        flops: Floating-point operations since then, forward and backward; None if they cannot be counted.
        throughput: ``tokens_per_s``, ``mfu``, ``step_s`` and ``peak_memory_bytes``.
        batch_sha: Digest of the sequences of the step.
    """
    return {
        "step": step,
        "loss": values.loss,
        "ce": values.by_loop("ce", total),
        "regularizers": values.regularizers,
        "terms": values.terms,
        "loops": total,
        "loops_mean": values.means.get("depth", loops_mean),
        "backprop_loops": backprop,
        "lr": lr,
        "grad_norm": grad_norm if values.grad_norm is None else values.grad_norm,
        "state_norm": values.by_loop("state_norm", total),
        "tokens": tokens,
        "flops": flops,
        **throughput,
        "batch_sha": batch_sha,
    }
