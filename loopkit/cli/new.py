"""``loopkit new``: the beginning of a plugin or of a recipe."""

from __future__ import annotations

from pathlib import Path

import click

from loopkit.cli.groups import Suggesting
from loopkit.cli.options import plugin_options
from loopkit.errors import UserError, file_errors


@click.group("new", cls=Suggesting)
def command() -> None:
    """Begin a plugin or a recipe."""


@command.command("plugin")
@click.argument("name")
@click.option(
    "--kind", "kinds", required=True, multiple=True, help="What it decides; loopkit list shows the kinds; may repeat."
)
@click.option("--out", type=click.Path(path_type=Path), default=Path(), help="Folder that gets the package's folder.")
def plugin(name: str, kinds: tuple[str, ...], out: Path) -> None:
    """Write an installable package NAME with a small component of each kind, a recipe, and a test that runs the kit."""
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
@click.option("--from", "parent", default="wikitext_44m_raw", show_default=True, help="Recipe that it starts from.")
@click.option("--out", type=click.Path(path_type=Path), default=Path(), help="Folder to write it to.")
@plugin_options
def recipe(name: str, parent: str, out: Path, plugins: tuple[Path, ...], no_plugins: bool) -> None:
    """Write a recipe NAME that extends another, with every value of it as a comment that says what it means."""
    import re

    from loopkit.recipe import load_recipe, shipped_recipes
    from loopkit.recipe.authoring.scaffold import scaffold

    if not re.fullmatch(r"\w[\w.-]*", name):
        raise UserError(f"{name!r} is no name of a recipe; use letters, digits, '-' and '_'")
    file = out / f"{name.removesuffix('.yaml')}.yaml"
    if file.exists():
        raise UserError(f"{file} exists already; nothing was written")
    resolved = load_recipe(parent, plugins=plugins, installed=not no_plugins)
    assert resolved.path is not None
    extends = parent if parent in shipped_recipes(not no_plugins) else _from(out, resolved.path)
    own = [_from(out, plugin) for plugin in plugins]
    with file_errors(file, "written"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(scaffold(resolved, extends, own), encoding="utf-8")
    click.echo(f"wrote {file}\n\nloopkit validate {file}")


def _from(folder: Path, file: Path) -> str:
    """A path as a recipe in a folder has to write it."""
    import os

    return os.path.relpath(file.resolve(), folder.resolve())
