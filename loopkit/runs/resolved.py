"""The resolved recipe of a checkpoint, read again; where a plugin is missing, who brought it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from loopkit.errors import UserError, file_errors
from loopkit.recipe import Problem, Recipe, RecipeError, load_recipe
from loopkit.registry import KINDS
from loopkit.registry.catalog import catalog
from loopkit.runs.checkpoint import STATE, Checkpoint


def recorded_origins(checkpoint: Checkpoint) -> dict[str, str]:
    """Who brought each component when the checkpoint was written, by ``kind name``; empty where none was noted."""
    file = checkpoint.path / STATE
    if not file.is_file():
        return {}
    with file_errors(file, "read"):
        content = file.read_bytes()
    try:
        found: dict[str, str] = json.loads(content).get("components", {})
    except (ValueError, AttributeError) as error:
        raise UserError(f"{file} is damaged ({error}); choose another checkpoint with --step") from error
    return found


def load_resolved(
    file: Path, checkpoint: Checkpoint, overrides: Sequence[str] = (), plugins: Sequence[Path] = ()
) -> Recipe:
    """Read a run's resolved recipe.

    Args:
        file: The recipe.
        checkpoint: The one that is to be loaded.
        overrides: Changes to it.
        plugins: Files with further components, beside those that the run was made with.

    Raises:
        RecipeError: With every problem; a component that is not there is named with the package that brought it.
    """
    try:
        return load_recipe(file, overrides=overrides, plugins=plugins)
    except RecipeError as error:
        brought = recorded_origins(checkpoint)
        raise RecipeError([_with_origin(problem, brought) for problem in error.problems]) from None


def _with_origin(problem: Problem, brought: Mapping[str, str]) -> Problem:
    """The problem, with where the component comes from if it is one that is not installed."""
    if problem.path == ("plugins",):
        return replace(problem, hint="put the file back: the run was made with it")
    for name, origin in brought.items():
        kind, _, component = name.partition(" ")
        missing = kind in KINDS and component.rpartition(":")[2] not in catalog().names(kind)
        if missing and problem.message == f"no {kind} is called {component!r}":
            where = f"it comes from {origin}, which is not installed here"
            remedy = f"put {origin} back" if "(sha256" in origin else f"pip install {origin.replace(' ', '==')}"
            return replace(problem, message=f"{problem.message}; {where}", hint=remedy)
    return problem
