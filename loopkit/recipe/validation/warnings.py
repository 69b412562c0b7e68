"""Settings that are allowed and cannot take effect, derived from the recipe. No torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from loopkit.plural import plural
from loopkit.recipe.recipe import Recipe


def ineffective(recipe: Recipe, examples: int | None = None) -> Iterator[str]:
    """Yield a line for each setting that cannot take effect: its key, why, and what to do.

    Args:
        recipe: The resolved recipe.
        examples: Training sequences of an epoch; None uses the limit of the source, if it has one.
    """
    examples = _examples(recipe) if examples is None else examples
    if (steps := recipe.train.num_steps(examples, recipe.data.length)) is not None:
        yield from _lengths(recipe, steps)
    batch = recipe.train.batch
    if examples is not None and examples < batch:
        why = f"an epoch has {plural(examples, 'sequence')}, so a step of {batch:,} reads some of them twice"
        yield f"train.batch: {why}; set a smaller batch, or give more data"
    yield from _one_loop(recipe)
    yield from _weights(recipe)
    if recipe.train.start_from is None:
        settings = {"start_weights": recipe.train.start_weights != "trained"}
        settings["start_optimizer"] = recipe.train.start_optimizer
        for name in (name for name, is_set in settings.items() if is_set):
            yield f"train.{name}: the run starts with initial weights; set train.start_from, or remove it"
    if recipe.train.checkpoint.best.figure is not None and recipe.evaluate.every is None:
        yield (
            "train.checkpoint.best: the run is evaluated only at its end, so there is nothing to choose from; "
            "set evaluate.every"
        )


def _examples(recipe: Recipe) -> int | None:
    """Return the largest number of training examples of the source, if an option limits it."""
    source = recipe.data.source
    most = source.options.get(source.schema.traits.get("examples", ""))
    return most if isinstance(most, int) else None


def _lengths(recipe: Recipe, steps: int) -> Iterator[str]:
    """Yield lengths in optimizer steps that do not fit into the run."""
    for path, spec in recipe.specs.items():
        key = ".".join(path)
        names = sorted(spec.schema.traits.get("lengths", ()))
        lengths = {name: _in_steps(spec.options.get(name), steps) for name in names}
        positive = {name: length for name, length in lengths.items() if length}
        if too_long := {name: length for name, length in positive.items() if length > steps}:
            for name, length in too_long.items():
                why = f"{plural(round(length), 'step')} reach past the end of the run, which has {steps:,}"
                yield f"{key}.{name}: {why}; {_SHORTER}"
        elif sum(positive.values()) > steps:
            what = " and ".join(positive)
            yield f"{key}: {what} take {sum(positive.values()):,.0f} steps of a run of {steps:,}; {_SHORTER}"
    ema = recipe.train.ema
    if ema.decay is not None and (start := _in_steps(ema.start, steps)) >= steps:
        why = f"averaging starts after {plural(round(start), 'step')} of a run of {steps:,}"
        yield f"train.ema.start: {why}, so the average equals the weights; {_SHORTER}"


_SHORTER = "shorten it, or give it as a share of the run such as 0.1"


def _in_steps(length: Any, steps: int) -> float:
    """Return a length in steps: a whole number is one already, a fraction a share of the run."""
    if isinstance(length, int) and not isinstance(length, bool):
        return length
    return length * steps if isinstance(length, float) else 0


def _one_loop(recipe: Recipe) -> Iterator[str]:
    """Yield exit rules without effect because every sequence has one exit only."""
    schedule = recipe.train.schedule
    if schedule.options.get(schedule.schema.traits.get("maximum", "")) != 1:
        return
    for path, spec in recipe.specs.items():
        if "gate" in spec.schema.traits.get("needs", ()):
            yield (
                f"{'.'.join(path)}: {spec.kind} '{spec.name}' weighs exits, and train.schedule never runs a second "
                "loop, so all weight falls on one; raise train.schedule"
            )


def _weights(recipe: Recipe) -> Iterator[str]:
    for name, spec in recipe.objective.regularizers.items():
        if spec.options.get("weight") == 0:
            key = f"objective.regularizers.{name}"
            yield f"{key}.weight: a regularizer of weight 0 is computed and changes nothing; remove it with {key}=false"
