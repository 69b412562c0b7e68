"""What an evaluation found, with everything that another one must share to be compared with it. No torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class TrainedDepths:
    """The depths that a model was trained at.

    Args:
        min: Fewest loops of a training step.
        max: Most loops of a training step.
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
        """Plain values; ``depths`` only where it says more than the range."""
        known = {"min": self.min, "max": self.max, "mean": self.mean}
        return known if self.depths is None else known | {"depths": list(self.depths)}


@dataclass(frozen=True)
class ModelSource:
    """Where a model came from; what is not known is ``None``.

    Args:
        run: Name of the run.
        recipe: Name of the recipe.
        recipe_hash: Hash of the resolved recipe.
        checkpoint: Name of the checkpoint.
        step: Optimizer steps behind it.
    """

    run: str | None = None
    recipe: str | None = None
    recipe_hash: str | None = None
    checkpoint: str | None = None
    step: int | None = None


@dataclass(frozen=True)
class Conditions:
    """How an evaluation was made.

    Args:
        split: Part of the data that was scored; where none was, the names of the tasks.
        slice: What of it was scored, in words; ``None``, as all below that speak of scoring, where nothing was.
        data: Fingerprint of the split's text.
        tokenizer: ``type``, ``size`` and ``fingerprint``.
        dtype: Arithmetic, ``fp32`` or ``bf16_autocast``.
        device: Where it ran.
        protocol: ``non_overlapping`` scores each token once, ``half_overlap`` overlapping windows in full.
        window: Inputs of a window, in tokens.
        stride: Tokens from one window to the next.
        batch: Windows, or texts, per forward pass.
        read_as: ``depth`` reads each depth as if it were the last loop, ``trained`` as training read it.
        tokens_scored: Number of scores.
        words: Words that they spell, or ``None``.
        bytes: UTF-8 bytes that they spell, or ``None``.
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
    """Everything an evaluation found.

    Args:
        origin: Where the model came from.
        conditions: How it was evaluated.
        trained: Depths of training, if known.
        core_calls: Core calls of the depth sweep, counted; those of probes and timing are not among them.
        batches: Batches of the sweep.
        passes: ``one`` for all depths, ``one per depth``, or how many there were.
        depths: A row per depth: ``depth``, ``trained``, the figures of tasks and probes.
        tables: What probes found that is not one figure per depth; a number that is not finite is ``null``, and its
            place is named in ``not_finite``.
        tasks: Of each task that had texts generated: its options, how it asks, and one prompt in full.
        completions: Name of the file in the run's folder that holds those texts.
        units: Definition and unit of the probes' figures.
        notes: What a reader should know, in sentences.
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
        """Plain values for ``json.dumps(..., allow_nan=False)``: what was not measured is absent, never zero."""
        found: dict[str, Any] = _known(asdict(self.origin)) | _known(asdict(self.conditions))
        if self.trained is not None:
            found["trained_depths"] = self.trained.to_json()
        if self.tasks:
            found["tasks"] = dict(self.tasks)
        if self.completions is not None:
            found["completions"] = self.completions
        found |= {"core_calls": self.core_calls, "batches": self.batches, "passes": self.passes}
        found["depths"] = [dict(row) for row in self.depths]
        tables, lost = _finite_values(self.tables, ())
        parts: dict[str, Any] = {"tables": tables, "not_finite": sorted(set(lost))}
        parts |= {"units": dict(self.units), "notes": list(self.notes)}
        return found | {name: part for name, part in parts.items() if part}


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def row_of(depth: int, trained: TrainedDepths | None, figures: Mapping[str, Any]) -> dict[str, Any]:
    """The row of one depth; a figure that is not finite is left out, and named in ``not_finite``.

    Args:
        depth: In loops.
        trained: Depths of training, if known.
        figures: Numbers, or maps of numbers, by name.
    """
    row: dict[str, Any] = {"depth": depth}
    if trained is not None:
        row["trained"] = trained.covers(depth)
    finite, lost = _split_finite(figures)
    return row | finite | ({"not_finite": lost} if lost else {})


def _finite_values(value: Any, path: tuple[str, ...]) -> tuple[Any, list[str]]:
    """Plain values with ``None`` for each number that is not finite, and the names under which such numbers stood."""
    if isinstance(value, Mapping):
        parts = {key: _finite_values(item, (*path, str(key))) for key, item in value.items()}
        return {key: item for key, (item, _) in parts.items()}, [name for _, lost in parts.values() for name in lost]
    if isinstance(value, list | tuple):
        items = [_finite_values(item, path) for item in value]
        return [item for item, _ in items], [name for _, lost in items for name in lost]
    if isinstance(value, float) and not math.isfinite(value):
        return None, [".".join(path)]
    return value, []


def _split_finite(figures: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    finite: dict[str, Any] = {}
    lost: list[str] = []
    for name, value in figures.items():
        if isinstance(value, Mapping):
            inner, missing = _split_finite(value)
            lost += [f"{name}.{below}" for below in missing]
            if inner:
                finite[name] = inner
        elif math.isfinite(value):
            finite[name] = value
        else:
            lost.append(name)
    return finite, lost
