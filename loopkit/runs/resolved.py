"""The resolved recipe of a run; for missing components, the package that provided them."""

from __future__ import annotations

import contextlib
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from loopkit.errors import UserError, file_errors
from loopkit.recipe import Problem, Recipe, RecipeError, load_recipe
from loopkit.recipe.read import read_file
from loopkit.registry import KINDS
from loopkit.registry.catalog import catalog
from loopkit.runs.checkpoint import STATE, Checkpoint
from loopkit.runs.folder import RunFolder
from loopkit.runs.plugin_files import changed_components, copy_of, is_file, is_version_of, provider
from loopkit.runs.provenance import read_provenance


def recorded_origins(checkpoint: Checkpoint) -> dict[str, str]:
    """Return the provider of each component at the time of the checkpoint, by ``kind name``; empty if not recorded."""
    file = checkpoint.path / STATE
    if not file.is_file():
        return {}
    with file_errors(file, "read"):
        content = file.read_bytes()
    try:
        origins: dict[str, str] = json.loads(content).get("components", {})
    except (ValueError, AttributeError) as error:
        raise UserError(f"{file} is damaged ({error}); choose another checkpoint with --step") from error
    return origins


def load_resolved(
    file: Path, checkpoint: Checkpoint, overrides: Sequence[str] = (), plugins: Sequence[Path] = ()
) -> Recipe:
    """Read a run's resolved recipe.

    Args:
        file: The recipe.
        checkpoint: The one that is to be loaded.
        overrides: Changes to it.
        plugins: Files with further components, in addition to those of the run. A file with the name or the content
            of a missing one replaces it.

    Warns:
        UserWarning: If the file of a component is no longer the one that the checkpoint was trained with, or is missing
            and the copy in the run folder is used.

    Raises:
        RecipeError: With every problem; a component that is not there is named with the package that brought it.
    """
    brought = recorded_origins(checkpoint)
    recorded = [Path(name) for name in read_file(file).plain().get("plugins") or ()]
    replacements = _replace_missing(recorded, plugins, brought, RunFolder(file.parent))
    if replacements:
        paths = [str(replacements.get(path, path)) for path in recorded]
        overrides = (*overrides, f"plugins={json.dumps(paths)}")
        plugins = [path for path in plugins if path.resolve() not in replacements.values()]
    try:
        recipe = load_recipe(file, overrides=overrides, plugins=plugins, saved=True)
    except RecipeError as error:
        raise RecipeError([_with_origin(problem, brought, file) for problem in error.problems]) from None
    for change in changed_components(brought, recipe.specs.values()):
        warnings.warn(f"a plugin has changed since training: {change}{_copies(file)}", stacklevel=1)
    if replacements:  # where a plugin file lies is not part of the recipe's identity
        restored = {str(new): str(old) for old, new in replacements.items()}
        values = {**recipe.values, "plugins": [restored.get(path, path) for path in recipe.values["plugins"]]}
        recipe = replace(recipe, values=values)
    return recipe


def _replace_missing(
    recorded: Sequence[Path], given: Sequence[Path], brought: Mapping[str, str], folder: RunFolder
) -> dict[Path, Path]:
    """Find a file for each missing plugin file of a run: one of the command line, else the copy in the run folder."""
    replacements = {}
    for path in recorded:
        if path.exists():
            continue
        for file in given:
            if is_version_of(file, path, brought.values()):
                replacements[path] = file.resolve()
        if path not in replacements and (copy := copy_of(folder, path, brought.values())) is not None:
            replacements[path] = copy
            warnings.warn(f"plugin file {path} is missing; its copy {copy} is used", stacklevel=2)
    return replacements


def is_run_of(folder: RunFolder, recipe: Recipe) -> bool:
    """Check whether a run was made with a recipe, by any version of loopkit.

    The hash in its provenance counts only where the resolved recipe is missing: how it is computed may have changed.

    Raises:
        RecipeError: If the resolved recipe of the run cannot be read.
    """
    if folder.resolved.is_file():
        return recipe.is_recipe_of(read_file(folder.resolved).plain())
    recorded = read_provenance(folder.provenance).get("recipe_hash")
    return bool(recorded == recipe.hash)


def run_named_before(root: Path, recipe: Recipe) -> RunFolder | None:
    """Return the run of a recipe with ``--set`` whose name has the hash that another version of loopkit computed."""
    for folder in RunFolder.all(root):
        if re.fullmatch(rf"{re.escape(recipe.name)}-[0-9a-f]{{8}}", folder.name):
            with contextlib.suppress(RecipeError):  # a damaged recipe is not this one
                if is_run_of(folder, recipe):
                    return folder
    return None


def _copies(file: Path) -> str:
    """Return where the run of a resolved recipe keeps its plugin files; empty where it keeps none."""
    copies = RunFolder(file.parent).plugins
    return f"; the files of training are in {copies}" if copies.is_dir() else ""


def _with_origin(problem: Problem, brought: Mapping[str, str], file: Path) -> Problem:
    """Return the problem, with where the component comes from if it is one that is not installed."""
    if problem.path == ("plugins",):
        return replace(problem, hint=f"put the file back, or pass its new path with --plugins{_copies(file)}")
    for name, origin in brought.items():
        kind, _, component = name.partition(" ")
        missing = kind in KINDS and component.rpartition(":")[2] not in catalog().names(kind)
        if missing and problem.message == f"no {kind} is called {component!r}":
            source = origin if is_file(origin) else provider(origin)
            where = f"it comes from {source}, which is not installed here"
            remedy = f"put {source} back" if is_file(origin) else f"pip install {source.replace(' ', '==')}"
            return replace(problem, message=f"{problem.message}; {where}", hint=remedy)
    return problem
