"""What a shell offers behind TAB: shipped recipes and studies by name, and the runs of this folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem


def recipe_words(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Names of shipped recipes, and files."""
    from loopkit.recipe.shipped import shipped_recipes

    return [_files(begun), *_those(shipped_recipes(), begun)]


def study_words(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Names of shipped studies, and files."""
    from loopkit.recipe.shipped import own_folder

    return [_files(begun), *_those((file.stem for file in (own_folder() / "studies").glob("*.yaml")), begun)]


def run_words(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Names of the runs in the folder of runs, and other folders."""
    from loopkit.runs.folder import RunFolder

    root = Path(context.params.get("root" if "root" in context.params else "runs") or "runs")
    return [CompletionItem(begun, type="dir"), *_those((run.name for run in RunFolder.all(root)), begun)]


def recipe_or_run_words(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Names of shipped recipes and of runs, and files."""
    return [*recipe_words(context, parameter, begun), *run_words(context, parameter, begun)[1:]]


def _files(begun: str) -> CompletionItem:
    """Asks the shell for its own names of files; it stands first, as bash forgets what it was told before it."""
    return CompletionItem(begun, type="file")


def _those(names: Iterable[str], begun: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in sorted(names) if name.startswith(begun)]
