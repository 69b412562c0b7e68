"""Shell completion: names of shipped recipes and studies, and of the runs in the folder of runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem


def complete_recipe(context: click.Context, parameter: click.Parameter, prefix: str) -> list[CompletionItem]:
    """Complete names of shipped recipes, and files."""
    from loopkit.recipe.shipped import shipped_recipes

    return [_files(prefix), *_matching(shipped_recipes(), prefix)]


def complete_study(context: click.Context, parameter: click.Parameter, prefix: str) -> list[CompletionItem]:
    """Complete names of shipped studies, and files."""
    from loopkit.recipe.shipped import own_folder

    return [_files(prefix), *_matching((file.stem for file in (own_folder() / "studies").glob("*.yaml")), prefix)]


def complete_run(context: click.Context, parameter: click.Parameter, prefix: str) -> list[CompletionItem]:
    """Complete names of the runs in the folder of runs, and other folders."""
    from loopkit.runs.folder import RunFolder

    root = Path(context.params.get("root" if "root" in context.params else "runs") or "runs")
    return [CompletionItem(prefix, type="dir"), *_matching((run.name for run in RunFolder.all(root)), prefix)]


def complete_recipe_or_run(context: click.Context, parameter: click.Parameter, prefix: str) -> list[CompletionItem]:
    """Complete names of shipped recipes and of runs, and files."""
    return [*complete_recipe(context, parameter, prefix), *complete_run(context, parameter, prefix)[1:]]


def _files(prefix: str) -> CompletionItem:
    """Let the shell add file names; this item must be first, because bash drops the items before it."""
    return CompletionItem(prefix, type="file")


def _matching(names: Iterable[str], prefix: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in sorted(names) if name.startswith(prefix)]
