"""``loopkit schema``: write the JSON schema of recipes, for editors."""

from __future__ import annotations

from pathlib import Path

import click

from loopkit.cli.options import plugin_options
from loopkit.errors import file_errors


@click.command("schema")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="File to write.  [default: standard output]"
)
@plugin_options
def command(out: Path | None, plugins: tuple[Path, ...], no_plugins: bool) -> None:
    """Write the JSON schema of recipes, including the components of installed plugins.

    An editor uses it if the first line of a recipe is

    \b
        # yaml-language-server: $schema=loopkit.schema.json
    """
    import json

    from loopkit.recipe.authoring.editor_schema import editor_schema
    from loopkit.registry.catalog import catalog

    text = json.dumps(editor_schema(catalog(not no_plugins).with_files(plugins)), indent=1) + "\n"
    if out is None:
        click.echo(text, nl=False)
    else:
        with file_errors(out, "written"):
            out.write_text(text, encoding="utf-8")
        click.echo(f"wrote {out}")
