"""A narrow and shallow surrogate of a recipe's model with the same components."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch

from loopkit.components.schedule import Schedule
from loopkit.evaluation.audit.subject import AuditSubject
from loopkit.loop import Batch
from loopkit.model import LoopedModel, build_model
from loopkit.recipe import Recipe
from loopkit.recipe.format import ModelConfig, StageConfig
from loopkit.registry import AtMost, Divides, Spec
from loopkit.registry.annotations import sibling_bounds
from loopkit.registry.schema import Leaf

WIDTH, LAYERS, VOCABULARY, LENGTH, SEQUENCES, LOOPS = 64, 2, 64, 32, 4, 8
"""Minimum channels; maximum layers per stage, vocabulary size, tokens per sequence, sequences and loops."""


def surrogate(recipe: Recipe) -> AuditSubject:
    """Build a recipe's model at initialization, small enough to measure in seconds, with random tokens.

    Width, layers, vocabulary and lengths are reduced; everything else is the recipe's.
    """
    length = min(recipe.data.length, LENGTH)
    section = narrow(recipe.model)
    try:
        model = _build(recipe, section, length)
    except ValueError:  # a component may accept only certain widths, of which the recipe's is one
        model = _build(recipe, replace(section, width=recipe.model.width), length)
    generator = torch.Generator().manual_seed(recipe.seed)
    tokens = torch.randint(VOCABULARY, (SEQUENCES, length + 1), generator=generator)
    batch = Batch.of(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
    return AuditSubject.of(model, recipe, batch, LOOPS)


def _build(recipe: Recipe, section: ModelConfig, length: int) -> LoopedModel:
    schedule: Schedule = recipe.train.schedule.build()
    return build_model(
        section,
        vocabulary=VOCABULARY,
        max_length=length,
        max_loops=schedule.bounds[1],
        mean_loops=schedule.mean,
        seed=recipe.seed,
    )


def narrow(model: ModelConfig) -> ModelConfig:
    """Return the section with fewer channels and layers.

    Options do not change, so the width must fit them: it divides the original width and is a multiple of every option
    that must divide the width. The number of layers does not change if parameters are tied by the index of a block.
    """
    specs = [spec for name in ModelConfig.__dataclass_fields__ for spec in _specs(getattr(model, name))]
    narrowed = replace(model, width=narrow_width(model.width, specs), vocabulary=None)
    if any(part.isdigit() for pair in model.tie.items() for path in pair for part in path.split(".")):
        return narrowed
    return replace(narrowed, core=_shallow(model.core), prelude=_stage(model.prelude), coda=_stage(model.coda))


def narrow_width(width: int, specs: list[Spec]) -> int:
    """Return the smallest divisor of a width, of at least ``WIDTH`` channels, that all components accept.

    Args:
        width: Width of the recipe.
        specs: Components with options that must divide the width or not exceed it.
    """
    unit, min_width = 1, WIDTH
    for spec in specs:
        for option, value in spec.options.items():
            annotation = spec.schema.options[option].annotation
            for bound in sibling_bounds(annotation.type) if isinstance(annotation, Leaf) and value is not None else ():
                if bound == Divides("width"):
                    unit = math.lcm(unit, value)
                if bound == AtMost("width"):
                    min_width = max(min_width, math.ceil(value))
    # an even head size remains even, because rotations pair its channels
    step = 2 if width // unit % 2 == 0 else 1
    fitting = (part * unit for part in range(step, width // unit + 1, step) if width // unit % part == 0)
    return next((size for size in fitting if size >= min_width), width)


def _specs(value: object) -> Iterator[Spec]:
    """Yield every component in an option's value or a section, including nested ones."""
    if isinstance(value, Spec):
        yield value
        value = list(value.options.values())
    elif isinstance(value, StageConfig):
        value = [value.block, value.norm]
    elif isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _specs(item)


def _shallow(core: Spec) -> Spec:
    """Return the core with fewer layers, if its short option is their number."""
    name = core.schema.short
    if name is None or not isinstance(core.options.get(name), int):
        return core
    return replace(core, options={**core.options, name: min(core.options[name], LAYERS)})


def _stage(stage: StageConfig) -> StageConfig:
    return replace(stage, layers=min(stage.layers, LAYERS))
