"""The metrics of an optimizer step, gathered from its micro-steps with one transfer from the device."""

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
    """What one micro-step measured, still on the device.

    Args:
        names: ``loss``, ``ce/K``, ``state_norm/K``, ``regularizers/NAME`` and ``terms/NAME``; if the gate may end
            sequences, also ``depth``, ``tokens/K`` and ``scored/K``, which replace the counts known in advance.
        values: fp32, one for each name.
    """

    names: tuple[str, ...]
    values: Tensor


@dataclass(frozen=True)
class Counts:
    """Tokens of a micro-step, known before the device has done anything.

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
        """Count a batch, best while it is on the CPU."""
        tokens_B, scored_B = (batch.positions < PAD).sum(dim=1), batch.scored.sum(dim=1)
        first_B = torch.ones_like(tokens_B)
        if loops.per_sequence is not None:  # a sequence of n loops begins so late that all end together
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
    """What the micro-steps of one optimizer step measured.

    Per-loop cross-entropy is averaged over scored tokens, state norms over real tokens, of the sequences that ran the
    loop, terms of the supervision over scored tokens, and all else over micro-steps: so each is what one pass over the
    whole batch would have measured.

    Args:
        shift: Whether micro-steps of fewer loops are counted as the last loops of the step, not as the first. So it is
            where sequences have loops of their own and all end at the same one.
    """

    shift: bool = False
    parts: list[tuple[MicroStepMetrics, Counts]] = field(default_factory=list)

    def add(self, measured: MicroStepMetrics, counts: Counts) -> None:
        """Take one micro-step, without waiting for the device."""
        self.parts.append((measured, counts))

    @property
    def tokens(self) -> int:
        """Real tokens of the micro-steps so far, on this rank."""
        return sum(counts.tokens for _, counts in self.parts)

    def read(self, process: Process, grad_norm: Tensor | None) -> StepValues:
        """Bring everything to the host, over all ranks; this waits for the device, once.

        Args:
            process: Who else has a part of the batch.
            grad_norm: Global norm of the gradient where it is already known.
        """
        tensors = [measured.values for measured, _ in self.parts]
        if grad_norm is not None:
            tensors.append(grad_norm.detach().float().reshape(1))
        numbers = iter(torch.cat(tensors).tolist())
        sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        most = max(len(counts.tokens_by_loop) for _, counts in self.parts)
        for measured, counts in self.parts:
            moved = most - len(counts.tokens_by_loop) if self.shift else 0
            found = {name: next(numbers) for name in measured.names}
            for name, value in found.items():
                weight: float = 1
                what, _, loop = name.partition("/")
                if what in ("tokens", "scored"):
                    continue
                if what in ("ce", "state_norm"):
                    counted, by_loop = (
                        ("scored", counts.scored_by_loop) if what == "ce" else ("tokens", counts.tokens_by_loop)
                    )
                    weight = found.get(f"{counted}/{loop}", by_loop[int(loop) - 1])
                    name = f"{what}/{int(loop) + moved}"
                elif what == "terms":
                    weight = counts.scored
                sums[name][0] += weight * value if weight else 0.0
                sums[name][1] += weight
        norm = next(numbers, None)
        # the ranks run the same loops, so they have measured the same things
        names = sorted(sums)
        lost = norm is not None and not math.isfinite(norm)
        *flat, lost_anywhere = process.sum([number for name in names for number in sums[name]] + [float(lost)])
        means = {name: _ratio(*flat[2 * i : 2 * i + 2]) for i, name in enumerate(names)}
        return StepValues(means, norm if lost or not lost_anywhere else math.nan)


def _ratio(total: float, weight: float) -> float | None:
    return total / weight if weight else None


@dataclass
class StepValues:
    """Metrics of an optimizer step as plain numbers.

    Args:
        means: By the names of ``Measured``; None where nothing was scored.
        grad_norm: Global norm of the gradient before clipping; not finite on all ranks if it is so on any.
    """

    means: dict[str, float | None]
    grad_norm: float | None

    @property
    def loss(self) -> float:
        """The minimised scalar."""
        loss = self.means["loss"]
        assert loss is not None
        return loss

    @property
    def regularizers(self) -> dict[str, float | None]:
        """Unweighted values by name."""
        return self._named("regularizers/")

    @property
    def terms(self) -> dict[str, float | None]:
        """Other figures of the supervision by name."""
        return self._named("terms/")

    def _named(self, mark: str) -> dict[str, float | None]:
        return {name.removeprefix(mark): value for name, value in self.means.items() if name.startswith(mark)}

    def by_loop(self, what: str, total: int) -> list[float | None]:
        """``ce`` or ``state_norm`` of loops 1 .. total, None where there is none."""
        return [self.means.get(f"{what}/{k}") for k in range(1, total + 1)]

    def largest_state(self) -> tuple[int, float]:
        """The loop after which the state is largest, and its mean norm; zero where no state was measured."""
        norms = [(value, k) for k in range(1, self._loops() + 1) if (value := self.means.get(f"state_norm/{k}"))]
        value, k = max(norms, default=(0.0, 0))
        return k, value

    def fault(self) -> tuple[str, float] | None:
        """What is not finite first in the order of computation, with its loop and value, or None where all is well."""
        for k in range(1, self._loops() + 1):
            for what, words in (("state_norm", "the state"), ("ce", "the cross-entropy")):
                value = self.means.get(f"{what}/{k}")
                if value is not None and not math.isfinite(value):
                    return f"{words} of loop {k} is {value}", value
        named = [(f"the regularizer {name}", value) for name, value in self.regularizers.items()]
        named += [(f"the term {name}", value) for name, value in self.terms.items()]
        for words, value in [*named, ("the loss", self.loss), ("the gradient's norm", self.grad_norm)]:
            if value is not None and not math.isfinite(value):
                return f"{words} is {value}", value
        return None

    def _loops(self) -> int:
        by_loop = [name.partition("/") for name in self.means]
        return max((int(loop) for what, _, loop in by_loop if what in ("state_norm", "ce")), default=0)


def line(
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
    speed: Mapping[str, Any],
    batch_sha: str,
) -> dict[str, Any]:
    """A line of ``metrics.jsonl``.

    Args:
        values: What was measured.
        step: Optimizer steps done, this one included.
        total: Most core calls of a micro-step.
        loops_mean: Mean number of loops of a sequence, where ``values`` does not have it.
        backprop: Most loops that carried gradient.
        lr: Learning rate of the step.
        grad_norm: Global norm of the gradient before clipping, where ``values`` does not have it.
        tokens: Real tokens trained on since the beginning of the run.
        flops: Floating-point operations since then, forward and backward; None where they cannot be counted.
        speed: ``tokens_per_s``, ``mfu``, ``step_s`` and ``peak_memory_bytes``.
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
        **speed,
        "batch_sha": batch_sha,
    }
