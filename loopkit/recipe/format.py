"""The recipe format: every section, every key, its type, its default and its meaning.

This file and ``format_train.py``, which has the section `train`, are read as text, like the constructors of components:
what is written here is what `validate` accepts, what the editor completes and what the docs say. A slot for a component
is ``Annotated[Spec, "kind"]``, its default a name.
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
    """What the model reads.

    Args:
        source: Where the text comes from.
        tokenizer: How text becomes numbers.
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
        block: Their block; null means the model's.
        norm: Norm on the side that faces the loop; null means none.
        project: Square matrix between norm and blocks, and what it is at first; it does not decay. null means none.
    """

    short: ClassVar[str] = "layers"

    layers: NonNegativeInt = 0
    block: Annotated[Spec, "block"] | None = None
    norm: Annotated[Spec, "norm"] | None = None
    project: Literal["identity", "orthogonal"] | None = None


@dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """The output matrix; the bare words tied and untied are short for the option of that name.

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
        vocabulary: Rows of the token table, at least as many as the tokenizer has tokens; null means just as many.
        embedding: The token table.
        position: How tokens know their order.
        block: One layer, of the core and, unless they say otherwise, of prelude and coda.
        prelude: Unshared blocks before the loop.
        core: The shared blocks that one loop applies; a bare number is the number of layers.
        coda: Unshared blocks between the last state and the readout.
        start: The state before the first loop.
        injection: How the input re-enters each loop.
        carry: What passes from one loop to the next.
        readout: What of the state the head sees.
        gate: The learned exit gate.
        head: The output matrix.
        tie: Parameters that share memory, as path of the sharer to path of the owner.
        init: The first weights.
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
    """The scalar that training minimises.

    Args:
        supervision: Which loops are supervised, and how.
        regularizers: Extra losses over the trajectory, by name.
    """

    supervision: Annotated[Spec, "supervision"] = use("terminal")
    regularizers: dict[str, Annotated[Spec, "regularizer"]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """What is measured during training, at its end, and by `loopkit eval` unless its options say otherwise.

    Args:
        every: Optimizer steps between evaluations; null means only at the end.
        depths: Numbers of loops, such as 1-4 or 1,2,8; null means from one to the most trained.
        protocol: Which tokens are scored; non_overlapping scores each token once, half_overlap scores overlapping
            windows in full, as the readout-blind-spot paper does (arXiv:2606.24898).
        split: Which part of the data.
        stride: Tokens between evaluation windows; null means the window's length, or half of it under half_overlap.
        max_tokens: Score a slice of about this many tokens; null means the whole split.
        batch: Windows per forward pass.
        tasks: What is asked, by name.
        generation: When tasks that generate text run; eval means only in `loopkit eval`, because generation can add
            hours to training.
        probes: What else is measured at each depth, by name.
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
    """The same experiment with other values: one run for each point, started by `loopkit sweep`.

    Args:
        grid: Keys such as train.lr.peak, each with its values; every combination is a point.
        zip: Keys whose values go together, all lists of one length; each row is a point of the grid.
        seeds: Every point runs once with each.
    """

    grid: dict[str, Annotated[list[Any], MinLen(1)]] = field(default_factory=dict)
    zip: dict[str, Annotated[list[Any], MinLen(1)]] = field(default_factory=dict)
    seeds: Annotated[list[NonNegativeInt], MinLen(1)] | None = None


@dataclass(frozen=True, kw_only=True)
class Sections:
    """One experiment.

    Args:
        loopkit: Version of this format.
        extends: The recipe that this one starts from, as a path or the name of a shipped recipe.
        description: What the experiment shows, in a sentence.
        paper: Where it comes from.
        seed: Seed of everything random.
        data: What the model reads.
        model: The looped model, part by part.
        objective: The scalar that training minimises.
        train: How the model is trained.
        evaluate: What is measured.
        trackers: Where metrics also go, by name.
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
