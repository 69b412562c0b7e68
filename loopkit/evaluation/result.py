"""The result of an evaluation, with every condition that a comparable one must share. No torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class TrainedDepths:
    """The depths that a model was trained at.

    Args:
        min: Minimum number of loops of a training step.
        max: Maximum number of loops of a training step.
        mean: Mean number of loops.
        depths: Depths that a training step read as this evaluation reads them; ``None``: all from ``min`` to ``max``.
    """

    min: int
    max: int
    mean: float
    depths: tuple[int, ...] | None = None

    def covers(self, depth: int) -> bool:
        """Whether a depth was trained."""
        return self.min <= depth <= self.max if self.depths is None else depth in self.depths

    def to_json(self) -> dict[str, Any]:
        """Return plain values; ``depths`` only if it differs from the whole range."""
        record = {"min": self.min, "max": self.max, "mean": self.mean}
        return record if self.depths is None else record | {"depths": list(self.depths)}


@dataclass(frozen=True)
class ModelSource:
    """Where a model comes from; unknown values are ``None``.

    Args:
        run: Name of the run.
        recipe: Name of the recipe.
        recipe_hash: Hash of the resolved recipe.
        checkpoint: Name of the checkpoint.
        step: Its optimizer step.
        weights: ``ema`` for the average of its weights, ``None`` for the weights themselves.
    """

    run: str | None = None
    recipe: str | None = None
    recipe_hash: str | None = None
    checkpoint: str | None = None
    step: int | None = None
    weights: str | None = None


@dataclass(frozen=True)
class Conditions:
    """How an evaluation was made.

    Args:
        split: The scored split; the names of the tasks if nothing was scored.
        slice: Description of the scored part. It and the values of scoring below are ``None`` if nothing was scored.
        data: Fingerprint of the split's text.
        tokenizer: ``type``, ``size`` and ``fingerprint``.
        dtype: Arithmetic, ``fp32`` or ``bf16_autocast``.
        device: Where it ran.
        protocol: ``non_overlapping`` scores each token once, ``half_overlap`` overlapping windows in full.
        window: Inputs of a window, in tokens.
        stride: Tokens from one window to the next.
        batch: Windows, or completions, per forward pass.
        read_as: ``depth`` reads each depth as if it were the last loop, ``trained`` as training read it.
        tokens_scored: Number of scores.
        words: Number of words in the scored text, or ``None``.
        bytes: Number of UTF-8 bytes in the scored text, or ``None``.
    """

    split: str
    tokenizer: Mapping[str, Any]
    dtype: str
    device: str
    batch: int
    slice: str | None = None
    data: str | None = None
    protocol: str | None = None
    window: int | None = None
    stride: int | None = None
    read_as: str | None = None
    tokens_scored: int | None = None
    words: int | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Result:
    """The result of an evaluation.

    Args:
        origin: Where the model comes from.
        conditions: How it was evaluated.
        trained: Depths of training, if known.
        core_calls: Counted core calls of the depth sweep, without those of probes and timing.
        batches: Batches of the sweep.
        passes: ``one`` for all depths, ``one per depth``, or the number of passes.
        depths: A row per depth: ``depth``, ``trained``, the figures of tasks and probes.
        tables: Results of probes that are not one figure per depth; a number that is not finite is ``null``, and
            ``not_finite`` lists its path.
        tasks: For each task with completions: its options, its facts, and one complete prompt.
        completions: Name of the file in the run's folder that contains the completions.
        units: Definition and unit of the probes' figures.
        notes: Remarks for the reader, one sentence each.
    """

    origin: ModelSource
    conditions: Conditions
    trained: TrainedDepths | None
    core_calls: int
    batches: int
    passes: str
    depths: Sequence[Mapping[str, Any]]
    tables: Mapping[str, Any] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    tasks: Mapping[str, Any] = field(default_factory=dict)
    completions: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values for ``json.dumps(..., allow_nan=False)``; a value that was not measured is absent."""
        record: dict[str, Any] = _without_none(asdict(self.origin)) | _without_none(asdict(self.conditions))
        if self.trained is not None:
            record["trained_depths"] = self.trained.to_json()
        if self.tasks:
            record["tasks"] = dict(self.tasks)
        if self.completions is not None:
            record["completions"] = self.completions
        record |= {"core_calls": self.core_calls, "batches": self.batches, "passes": self.passes}
        record["depths"] = [dict(row) for row in self.depths]
        tables, not_finite = _finite_values(self.tables, ())
        parts: dict[str, Any] = {"tables": tables, "not_finite": sorted(set(not_finite))}
        parts |= {"units": dict(self.units), "notes": list(self.notes)}
        return record | {name: part for name, part in parts.items() if part}


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def build_row(depth: int, trained: TrainedDepths | None, figures: Mapping[str, Any]) -> dict[str, Any]:
    """Build the row of one depth; a figure that is not finite is listed in ``not_finite`` instead.

    Args:
        depth: In loops.
        trained: Depths of training, if known.
        figures: Numbers, or maps of numbers, by name.
    """
    row: dict[str, Any] = {"depth": depth}
    if trained is not None:
        row["trained"] = trained.covers(depth)
    finite, not_finite = _split_finite(figures)
    return row | finite | ({"not_finite": not_finite} if not_finite else {})


def _finite_values(value: Any, path: tuple[str, ...]) -> tuple[Any, list[str]]:
    """Replace each number that is not finite by ``None``, and list the paths of these numbers."""
    if isinstance(value, Mapping):
        parts = {key: _finite_values(item, (*path, str(key))) for key, item in value.items()}
        return {key: item for key, (item, _) in parts.items()}, [name for _, names in parts.values() for name in names]
    if isinstance(value, list | tuple):
        items = [_finite_values(item, path) for item in value]
        return [item for item, _ in items], [name for _, names in items for name in names]
    if isinstance(value, float) and not math.isfinite(value):
        return None, [".".join(path)]
    return value, []


def _split_finite(figures: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    finite: dict[str, Any] = {}
    not_finite: list[str] = []
    for name, value in figures.items():
        if isinstance(value, Mapping):
            nested, names = _split_finite(value)
            not_finite += [f"{name}.{part}" for part in names]
            if nested:
                finite[name] = nested
        elif math.isfinite(value):
            finite[name] = value
        else:
            not_finite.append(name)
    return finite, not_finite
