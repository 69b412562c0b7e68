"""Remedies for a blind spot: every built-in readout, carry and regularizer is tried on the surrogate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from loopkit.evaluation.audit.scale import scale_of
from loopkit.evaluation.audit.surrogate import surrogate
from loopkit.recipe import Recipe
from loopkit.registry import Spec
from loopkit.registry.catalog import catalog


def remedies(recipe: Recipe) -> dict[str, list[str]]:
    """Return the choices by recipe key that change the verdict, each with default options and no other change."""
    result: dict[str, list[str]] = {}
    for key, name, changed in _changes(recipe):
        try:
            controlled = scale_of(surrogate(changed)).verdict == "controlled"
        except (ValueError, TypeError, RuntimeError):
            continue  # a component that cannot run in this recipe is not a remedy
        if controlled:
            result.setdefault(key, []).append(name)
    return result


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
    """Yield built-in components without required options; plugins that the recipe does not use never run."""
    for offer in catalog(False).of(kind):
        if offer.schema is not None and not any(option.required for option in offer.schema.options.values()):
            yield Spec(kind, offer.name)
