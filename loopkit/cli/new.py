"""``loopkit new``: create a plugin or a recipe."""

from __future__ import annotations

from pathlib import Path

import click

from loopkit.cli.groups import SuggestingGroup
from loopkit.cli.options import plugin_options
from loopkit.errors import UserError, file_errors


@click.group("new", cls=SuggestingGroup)
def command() -> None:
    """Create a plugin or a recipe."""


@command.command("plugin")
@click.argument("name")
@click.option(
    "--kind", "kinds", required=True, multiple=True, help="Kind of component, as in loopkit list; may repeat."
)
@click.option("--out", type=click.Path(path_type=Path), default=Path(), help="Parent folder of the package.")
def plugin(name: str, kinds: tuple[str, ...], out: Path) -> None:
    """Create an installable package NAME with one component of each given --kind, a recipe and a test."""
    from loopkit.testing.scaffold import check_absent, names_of, plugin_files, write_files

    folder = out / name
    check_absent(folder)
    names = names_of(name, kinds)
    files = plugin_files(names, kinds)
    write_files(folder, files)
    for file in files:
        click.echo(f"wrote {folder / file}")
    click.echo(f"\ncd {folder} && pip install -e . && pytest && loopkit train {names.component}")


@command.command("recipe")
@click.argument("name")
@click.option(
    "--from", "parent", metavar="RECIPE", default="wikitext_44m_raw", show_default=True, help="Recipe to extend."
)
@click.option("--out", type=click.Path(path_type=Path), default=Path(), help="Folder of the recipe.")
@plugin_options
def recipe(name: str, parent: str, out: Path, plugins: tuple[Path, ...], no_plugins: bool) -> None:
    """Create a recipe NAME that extends another, with each inherited value as a comment."""
    import re

    from loopkit.recipe import load_recipe, shipped_recipes
    from loopkit.recipe.authoring.scaffold import scaffold

    if not re.fullmatch(r"\w[\w.-]*", name):
        raise UserError(f"{name!r} is not a valid name of a recipe; use letters, digits, '.', '-' and '_'")
    file = out / f"{name.removesuffix('.yaml')}.yaml"
    if file.exists():
        raise UserError(f"{file} already exists; choose another name or --out")
    resolved = load_recipe(parent, plugins=plugins, installed=not no_plugins)
    assert resolved.path is not None
    extends = parent if parent in shipped_recipes(not no_plugins) else _relative_path(out, resolved.path)
    plugin_paths = [_relative_path(out, plugin) for plugin in plugins]
    with file_errors(file, "written"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(scaffold(resolved, extends, plugin_paths), encoding="utf-8")
    click.echo(f"wrote {file}\n\nloopkit validate {file}")


def _relative_path(folder: Path, file: Path) -> str:
    """Return the path of a file relative to a folder, as a recipe there writes it."""
    import os

    return os.path.relpath(file.resolve(), folder.resolve())
