"""What would end a blind spot: every built-in readout, carry and regularizer is tried on the surrogate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from loopkit.evaluation.audit.scale import scale_of
from loopkit.evaluation.audit.surrogate import surrogate
from loopkit.recipe import Recipe
from loopkit.registry import Spec
from loopkit.registry.catalog import catalog


def remedies(recipe: Recipe) -> dict[str, list[str]]:
    """Recipe key to the choices at it that turn the verdict, each with its default options and nothing else changed."""
    found: dict[str, list[str]] = {}
    for key, name, changed in _changes(recipe):
        try:
            controlled = scale_of(surrogate(changed)).verdict == "controlled"
        except (ValueError, TypeError, RuntimeError):
            continue  # what cannot run in this recipe is no remedy for it
        if controlled:
            found.setdefault(key, []).append(name)
    return found


def _changes(recipe: Recipe) -> Iterator[tuple[str, str, Recipe]]:
    model, objective = recipe.model, recipe.objective
    for spec in _choices("readout"):
        if spec.name != model.readout.name:
            yield "model.readout", spec.name, replace(recipe, model=replace(model, readout=spec))
    for spec in _choices("carry"):
        if spec.name != model.carry.name:
            yield "model.carry", spec.name, replace(recipe, model=replace(model, carry=spec))
    for spec in _choices("regularizer"):
        changed = replace(objective, regularizers={**objective.regularizers, spec.name: spec})
        yield "objective.regularizers", spec.name, replace(recipe, objective=changed)


def _choices(kind: str) -> Iterator[Spec]:
    """Built-in components that work without being told any option; a plugin nobody asked for is not run."""
    for offer in catalog(False).of(kind):
        if offer.schema is not None and not any(option.required for option in offer.schema.options.values()):
            yield Spec(kind, offer.name)
