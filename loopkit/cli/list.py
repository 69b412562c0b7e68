"""``loopkit list``: the components and recipes that a recipe can name."""

from __future__ import annotations

from pathlib import Path

import click

from loopkit.cli.options import json_option, plugin_options
from loopkit.errors import UserError


@click.command("list")
@click.argument("kind", required=False)
@plugin_options
@json_option
def command(kind: str | None, plugins: tuple[Path, ...], no_plugins: bool, as_json: bool) -> None:
    """List the components of KIND, the shipped recipes if KIND is recipe, or all kinds by default."""
    import json

    from loopkit.registry import KINDS
    from loopkit.registry.catalog import catalog, did_you_mean

    if kind == "recipe":
        rows = _recipes(installed=not no_plugins)
    elif kind is None:
        components = catalog(not no_plugins).with_files(plugins)
        rows = [{"name": k.name, "summary": k.summary, "components": components.names(k.name)} for k in KINDS.values()]
    elif kind in KINDS:
        rows = _components(kind, plugins, installed=not no_plugins)
    else:
        raise UserError(
            f"no kind is called {kind!r}; {did_you_mean(kind, [*KINDS, 'recipe'])}kinds: {', '.join(KINDS)}, recipe"
        )
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    else:
        _print(rows, kind)


def _components(kind: str, plugins: tuple[Path, ...], installed: bool) -> list[dict[str, object]]:
    from loopkit.registry.catalog import catalog

    rows: list[dict[str, object]] = []
    for offer in catalog(installed).with_files(plugins).of(kind):
        summary = offer.schema.summary if offer.schema else f"cannot be used: {offer.problem}"
        options = list(offer.schema.options) if offer.schema else []
        rows.append({"name": offer.name, "summary": summary, "options": options, "from": str(offer.provider)})
    return rows


def _recipes(installed: bool) -> list[dict[str, object]]:
    from loopkit.recipe import RecipeError, load_recipe, shipped_recipes

    rows: list[dict[str, object]] = []
    for name, path in shipped_recipes(installed).items():
        try:
            recipe = load_recipe(path, installed=installed)
            rows.append({"name": name, "summary": recipe.description, "path": str(path)})
        except RecipeError:
            rows.append(
                {
                    "name": name,
                    "summary": f"cannot be read: loopkit validate {name}",
                    "path": str(path),
                }
            )
    return rows


def _print(rows: list[dict[str, object]], kind: str | None) -> None:
    from rich.table import Table

    from loopkit.report.console import console

    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    from_plugins = [
        row for row in rows if row.get("from") not in (None, "loopkit") and not str(row["from"]).startswith("loopkit ")
    ]
    table.add_column("kind" if kind is None else kind, no_wrap=True)
    table.add_column("components" if kind is None else "what it does")
    if from_plugins:
        table.add_column("from")
    for row in rows:
        summary = ", ".join(row["components"]) if kind is None else str(row["summary"])  # type: ignore[arg-type]
        table.add_row(str(row["name"]), summary, *([str(row["from"])] if from_plugins else []))
    console().print(table)
    click.echo(
        "\nloopkit list KIND describes each component"
        if kind is None
        else f"\nloopkit show {'RECIPE' if kind == 'recipe' else f'{kind}/NAME'} shows the details"
    )
