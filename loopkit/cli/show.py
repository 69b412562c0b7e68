"""``loopkit show``: show a recipe, a component, or the contract of a kind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from loopkit.cli.completion import complete_recipe
from loopkit.cli.options import json_option, recipe_options
from loopkit.errors import UserError

if TYPE_CHECKING:
    from loopkit.recipe import Recipe
    from loopkit.registry.catalog import Catalog
    from loopkit.registry.kinds import Kind
    from loopkit.registry.schema import Schema


@click.command("show")
@click.argument("what", metavar="RECIPE|COMPONENT|KIND", shell_complete=complete_recipe)
@recipe_options
@click.option("--origin", is_flag=True, help="Show where each value of a recipe comes from.")
@json_option
def command(
    what: str,
    profiles: tuple[str, ...],
    overrides: tuple[str, ...],
    plugins: tuple[Path, ...],
    no_plugins: bool,
    origin: bool,
    as_json: bool,
) -> None:
    """Show a recipe with all defaults, a component with its options, or the contract of a kind.

    A component is given by its name, or by kind/name if several kinds share it: readout/norm.
    """
    import json

    from loopkit.recipe import load_recipe
    from loopkit.recipe.authoring.describe import describe
    from loopkit.registry import KINDS
    from loopkit.registry.catalog import catalog

    if what in KINDS and not as_json and not Path(what).exists():
        components = catalog(not no_plugins).with_files(plugins)
        namesakes = [f"{kind}/{what}" for kind in KINDS if what in components.names(kind)]
        _show_kind(KINDS[what], components.names(what), namesakes)
        return
    schemas = _find_schemas(what, catalog(not no_plugins).with_files(plugins))
    if len(schemas) > 1 and not as_json:
        names = ", ".join(f"{schema.kind}/{schema.name}" for schema in schemas)
        raise UserError(f"{what!r} is the name of several components; write one of {names}")
    if schemas and as_json:
        rows = [
            {"kind": s.kind, "name": s.name, "doc": s.doc, "file": str(s.file), "line": s.line, "from": str(s.provider)}
            | {
                "options": {
                    n: {
                        "type": describe(o.annotation),
                        "doc": o.doc,
                        "default": None if o.required else o.default,
                        "required": o.required,
                    }
                    for n, o in s.options.items()
                }
            }
            for s in schemas
        ]
        click.echo(json.dumps(rows, indent=2))
    elif schemas:
        _show_component(schemas[0])
    else:
        recipe = load_recipe(what, profiles, overrides, plugins=plugins, installed=not no_plugins)
        if as_json:
            click.echo(json.dumps(recipe.values, indent=2))
        elif origin:
            _show_origins(recipe)
        else:
            click.echo(recipe.to_yaml(), nl=False)


def _show_kind(kind: Kind, names: list[str], namesakes: list[str]) -> None:
    """Show the contract of a kind and the components of the kind."""
    from loopkit.registry.contract import read_contract
    from loopkit.report.console import console
    from loopkit.report.pages.docstring import plain

    contract = read_contract(kind.name)
    out = console()
    out.print(kind.name, style="bold")
    out.print(f"{kind.summary}\n\n{contract.name}: {plain(contract.doc)}")
    for member in contract.members:
        out.print(f"\n{member.signature}", style="bold")
        out.print(plain(member.doc))
    out.print(f"\nconstructor arguments from the model: {', '.join(kind.wiring) or 'none'}")
    out.print(f"components: {', '.join(names)}")
    if namesakes:
        out.print(f"components with the name of the kind: {', '.join(namesakes)}")
    out.print(f"source: {contract.file}:{contract.line}", soft_wrap=True)


def _find_schemas(what: str, components: Catalog) -> list[Schema]:
    from loopkit.registry import KINDS

    kind, slash, name = what.partition("/")
    if slash and kind in KINDS and "/" not in name and not name.endswith(".yaml"):
        return [components.get(kind, name)]
    return [components.get(kind, what) for kind in KINDS if what in components.names(kind)]


def _show_component(schema: Schema) -> None:
    from rich.table import Table

    from loopkit.recipe.authoring.describe import describe
    from loopkit.registry.packages import missing_packages, remedy
    from loopkit.report.console import console
    from loopkit.report.pages.docstring import plain, unbroken

    out = console()
    out.print(f"{schema.kind}/{schema.name}", style="bold")
    out.print(plain(schema.doc))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("option", "accepts", "default", "meaning"):
        table.add_column(column, overflow="fold")
    for option in schema.options.values():
        default = "required" if option.required else _format_default(option.default)
        table.add_row(option.name, describe(option.annotation), default, unbroken(option.doc))
    out.print()
    if schema.options:
        out.print(table)
    else:
        out.print("no options")
    facts = [f"paper: {schema.traits['paper']}"] if "paper" in schema.traits else []
    if packages := schema.traits.get("packages"):
        missing = missing_packages(schema)
        state = f"; not installed: {', '.join(missing)}; {remedy(missing)}" if missing else "; installed"
        facts.append(f"needs: {', '.join(packages)}{state}")
    out.print(
        "\n".join([*facts, f"from: {schema.provider}", f"source: {schema.file}:{schema.line}"]),
        soft_wrap=True,
    )


def _format_default(value: object) -> str:
    """Write a default as a recipe would."""
    import json

    return str(value) if isinstance(value, str) else json.dumps(value, default=str)


def _show_origins(recipe: Recipe) -> None:
    """Print each value with the file and line, the override or the default that it comes from."""
    lines = list(_leaves(recipe.values))
    width = max(len(".".join(path)) + len(_shorten(value)) for path, value in lines) + 3
    for path, value in lines:
        key = path
        while key and key not in recipe.origins:
            key = key[:-1]
        origin = recipe.origins.get(key)
        layer = "default" if origin is None or origin.layer == "default" else str(origin)
        if origin is not None and "(profile" in origin.layer:
            layer += f" {origin.layer[origin.layer.index('(profile') :]}"
        click.echo(f"{'.'.join(path)}: {_shorten(value)}".ljust(min(width, 72)) + f"  {layer}")


def _shorten(value: object) -> str:
    import json

    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 50 else text[:47] + "..."


def _leaves(value: object, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], object]]:
    if isinstance(value, dict) and value:
        return [leaf for key, item in value.items() for leaf in _leaves(item, (*path, key))]
    return [(path, value)]
