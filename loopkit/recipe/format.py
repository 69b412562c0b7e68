"""The recipe format: every section, every key, its type, its default and its meaning.

This file and ``format_train.py``, which defines the section `train`, are read as text, like the constructors of
components: they define what `validate` accepts, what the editor completes and what the reference shows. A slot for a
component is ``Annotated[Spec, "kind"]``; its default is a name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Le, MinLen
from pydantic import NonNegativeInt, PositiveInt

from loopkit.recipe.format_train import (
    BestConfig,
    CheckpointConfig,
    EmaConfig,
    HealthConfig,
    LossSpikeConfig,
    StateNormConfig,
    TrainConfig,
)
from loopkit.registry.options import AtMost, Fraction
from loopkit.registry.spec import Spec, use

__all__ = [
    "BestConfig",
    "CheckpointConfig",
    "DataConfig",
    "EmaConfig",
    "EmbeddingConfig",
    "EvaluateConfig",
    "HeadConfig",
    "HealthConfig",
    "LossSpikeConfig",
    "ModelConfig",
    "ObjectiveConfig",
    "Sections",
    "StageConfig",
    "StateNormConfig",
    "SweepConfig",
    "TrainConfig",
]


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Source, tokenizer and windows of the data.

    Args:
        source: Source of the text.
        tokenizer: Mapping between text and token ids.
        length: Tokens in one training window or example.
        stride: Tokens from the start of one training window to the start of the next; null means length.
    """

    source: Annotated[Spec, "source"]
    tokenizer: Annotated[Spec, "tokenizer"]
    length: PositiveInt = 256
    stride: Annotated[PositiveInt, AtMost("length")] | None = None


@dataclass(frozen=True, kw_only=True)
class EmbeddingConfig:
    """The token table.

    Args:
        scale: Factor on the embedded tokens; sqrt_width is the square root of the width.
        dropout: Dropout rate on the sum of token and position embedding.
    """

    scale: float | Literal["sqrt_width"] = 1.0
    dropout: Fraction = 0.0


@dataclass(frozen=True, kw_only=True)
class StageConfig:
    """Unshared blocks before or after the loop; a bare number is the number of layers.

    Args:
        layers: Number of blocks.
        block: Block of these layers; null means the model's block.
        norm: Norm on the side of the loop; null means no norm.
        project: Initial value of a square matrix between norm and blocks, without weight decay; null means no matrix.
    """

    short: ClassVar[str] = "layers"

    layers: NonNegativeInt = 0
    block: Annotated[Spec, "block"] | None = None
    norm: Annotated[Spec, "norm"] | None = None
    project: Literal["identity", "orthogonal"] | None = None


@dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """The output matrix; the words tied and untied set the option `tied`.

    Args:
        tied: Whether the output matrix is the token table.
        bias: Whether logits have a bias.
    """

    words: ClassVar[dict[str, Any]] = {"tied": {"tied": True}, "untied": {"tied": False}}

    tied: bool = True
    bias: bool = False


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The looped model, part by part.

    Args:
        width: Channels of the state.
        vocabulary: Rows of the token table, at least the number of tokens of the tokenizer; null means that number.
        embedding: The token table.
        position: Position encoding.
        block: One layer of the core; also of prelude and coda unless they set their own.
        prelude: Unshared blocks before the loop.
        core: The shared blocks that one loop applies; a bare number is the number of layers.
        coda: Unshared blocks between the last state and the readout.
        start: The state before the first loop.
        injection: How each loop combines state and input.
        carry: Transformation of the state between two loops.
        readout: Transformation of the state before the head.
        gate: The learned exit gate.
        head: The output matrix.
        tie: Parameters that share memory, as path of the sharer to path of the owner.
        init: Initialization of the weights.
    """

    width: PositiveInt
    vocabulary: PositiveInt | None = None
    embedding: EmbeddingConfig
    position: Annotated[Spec, "position"] = use("rope")
    block: Annotated[Spec, "block"] = use("transformer")
    prelude: StageConfig
    core: Annotated[Spec, "core"] = use("stack")
    coda: StageConfig
    start: Annotated[Spec, "start"] = use("embedding")
    injection: Annotated[Spec, "injection"] = use("none")
    carry: Annotated[Spec, "carry"] = use("identity")
    readout: Annotated[Spec, "readout"] = use("norm")
    gate: Annotated[Spec, "gate"] = use("none")
    head: HeadConfig
    tie: dict[str, str] = field(default_factory=dict)
    init: Annotated[Spec, "init"] = use("normal")


@dataclass(frozen=True, kw_only=True)
class ObjectiveConfig:
    """The training loss.

    Args:
        supervision: Which loops are supervised, and how.
        regularizers: Extra losses over the trajectory, by name.
    """

    supervision: Annotated[Spec, "supervision"] = use("terminal")
    regularizers: dict[str, Annotated[Spec, "regularizer"]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """What is measured during training, at its end, and by default by `loopkit eval`.

    Args:
        every: Optimizer steps between evaluations; null means only at the end.
        depths: Numbers of loops, such as 1-4 or 1,2,8; null means from 1 to the largest trained depth.
        protocol: Which tokens are scored; non_overlapping scores each token once, half_overlap scores overlapping
            windows in full, as the readout-blind-spot paper does (arXiv:2606.24898).
        split: Split of the data.
        stride: Tokens between evaluation windows; null means the window's length, or half of it under half_overlap.
        max_tokens: Score a slice of about this many tokens; null means the whole split.
        batch: Windows per forward pass.
        tasks: Tasks, by name.
        generation: When tasks that generate text run; eval means only in `loopkit eval`, because generation can add
            hours to training.
        probes: Further measurements at each depth, by name.
    """

    every: PositiveInt | None = 1000
    depths: PositiveInt | str | None = None
    protocol: Literal["non_overlapping", "half_overlap"] = "non_overlapping"
    split: Literal["validation", "test", "train"] = "validation"
    stride: PositiveInt | None = None
    max_tokens: PositiveInt | None = None
    batch: PositiveInt = 8
    tasks: dict[str, Annotated[Spec, "task"]] = field(default_factory=dict)
    generation: Literal["always", "eval"] = "always"
    probes: dict[str, Annotated[Spec, "probe"]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """The same experiment with other values: one run per point, started by `loopkit sweep`.

    Args:
        grid: Keys such as train.lr.peak, each with its values; every combination is a point.
        zip: Keys whose values vary together, as lists of equal length; each row is a point of the grid.
        seeds: Seeds; every point runs once with each.
    """

    grid: dict[str, Annotated[list[Any], MinLen(1)]] = field(default_factory=dict)
    zip: dict[str, Annotated[list[Any], MinLen(1)]] = field(default_factory=dict)
    seeds: Annotated[list[NonNegativeInt], MinLen(1)] | None = None


@dataclass(frozen=True, kw_only=True)
class Sections:
    """One experiment.

    Args:
        loopkit: Version of this format.
        extends: Parent recipe, as a path or the name of a shipped recipe.
        description: What the experiment shows, in one sentence.
        paper: Paper that the experiment comes from.
        seed: Seed of all random numbers.
        data: Source, tokenizer and windows of the data.
        model: The looped model, part by part.
        objective: The training loss.
        train: Training settings.
        evaluate: Evaluation settings.
        trackers: Experiment trackers, by name.
        plugins: Local Python files with components, relative to the recipe.
        sweep: The same experiment with other values, for `loopkit sweep`.
        profiles: The same experiment at another scale, by name.
    """

    loopkit: Literal[2]
    extends: str | None = None
    description: str = ""
    paper: str | None = None
    seed: Annotated[NonNegativeInt, Le(18446744073709551615)] = 42
    data: DataConfig
    model: ModelConfig
    objective: ObjectiveConfig
    train: TrainConfig
    evaluate: EvaluateConfig
    trackers: dict[str, Annotated[Spec, "tracker"]] = field(default_factory=dict)
    plugins: list[Path] = field(default_factory=list)
    sweep: SweepConfig | None = None
    profiles: dict[str, Sections] = field(default_factory=dict)
