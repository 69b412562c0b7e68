"""``loopkit show``: a recipe with every default, or a component with its options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from loopkit.cli.completion import recipe_words
from loopkit.cli.options import json_option, recipe_options
from loopkit.errors import UserError

if TYPE_CHECKING:
    from loopkit.recipe import Recipe
    from loopkit.registry.kinds import Kind
    from loopkit.registry.schema import Schema


@click.command("show")
@click.argument("what", metavar="RECIPE|COMPONENT", shell_complete=recipe_words)
@recipe_options
@click.option("--origin", is_flag=True, help="Tell where every value was written.")
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
    """Show a recipe with every default written out, or a component with its options.

    A component is named by its name, or by kind/name where several kinds share it: readout/norm. The name of a kind
    shows its contract.
    """
    import json

    from loopkit.recipe import load_recipe
    from loopkit.recipe.authoring.describe import describe
    from loopkit.registry import KINDS
    from loopkit.registry.catalog import catalog

    if what in KINDS and not as_json and not Path(what).exists():
        known = catalog(not no_plugins).with_files(plugins)
        _show_kind(KINDS[what], known.names(what), [f"{kind}/{what}" for kind in KINDS if what in known.names(kind)])
        return
    schemas = _named(what, catalog(not no_plugins).with_files(plugins))
    if len(schemas) > 1 and not as_json:
        names = ", ".join(f"{schema.kind}/{schema.name}" for schema in schemas)
        raise UserError(f"{what!r} is the name of several components: {names}; say which")
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
    """The contract of a kind, from its source text, and the components that keep it."""
    import ast
    import inspect

    from loopkit.registry.catalog import COMPONENTS
    from loopkit.report.console import console
    from loopkit.report.pages.docstring import plain

    file = COMPONENTS / f"{kind.name}.py"
    file = file if file.is_file() else COMPONENTS / kind.name / "__init__.py"
    tree = ast.parse(file.read_text(encoding="utf-8"))
    contract = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind.contract)
    out = console()
    out.print(kind.name, style="bold")
    out.print(f"{kind.summary}\n\n{kind.contract}: {plain(ast.get_docstring(contract) or '')}")
    for method in contract.body:
        if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
            returns = f" -> {ast.unparse(method.returns)}" if method.returns else ""
            out.print(f"\n{method.name}({ast.unparse(method.args)}){returns}", style="bold")
            out.print(inspect.cleandoc(plain(ast.get_docstring(method) or "")))
    out.print(f"\nwiring: {', '.join(kind.wiring) or 'none'}")
    out.print(f"components: {', '.join(names)}")
    if namesakes:
        out.print(f"components with the name of the kind: {', '.join(namesakes)}")
    out.print(f"source: {file}:{contract.lineno}", soft_wrap=True)


def _named(what: str, known: object) -> list[Schema]:
    from loopkit.registry import KINDS
    from loopkit.registry.catalog import Catalog

    assert isinstance(known, Catalog)
    kind, slash, name = what.partition("/")
    if slash and kind in KINDS and "/" not in name and not name.endswith(".yaml"):
        return [known.get(kind, name)]
    return [known.get(kind, what) for kind in KINDS if what in known.names(kind)]


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
        default = "required" if option.required else "null" if option.default is None else str(option.default)
        table.add_row(option.name, describe(option.annotation), default, unbroken(option.doc))
    out.print()
    if schema.options:
        out.print(table)
    else:
        out.print("no options")
    facts = [f"paper: {schema.traits['paper']}"] if "paper" in schema.traits else []
    if packages := schema.traits.get("packages"):
        missing = missing_packages(schema)
        here = f"; not installed: {', '.join(missing)}; {remedy(missing)}" if missing else "; installed"
        facts.append(f"needs: {', '.join(packages)}{here}")
    out.print(
        "\n".join([*facts, f"from: {schema.provider}", f"source: {schema.file}:{schema.line}"]),
        soft_wrap=True,
    )


def _show_origins(recipe: Recipe) -> None:
    """One line per value: key, value, and the file and line, override or default it came from."""
    lines = list(_leaves(recipe.values))
    widest = max(len(".".join(path)) + len(_short(value)) for path, value in lines) + 3
    for path, value in lines:
        place = path
        while place and place not in recipe.origins:
            place = place[:-1]
        origin = recipe.origins.get(place)
        layer = "default" if origin is None or origin.layer == "default" else str(origin)
        if origin is not None and "(profile" in origin.layer:
            layer += f" {origin.layer[origin.layer.index('(profile') :]}"
        click.echo(f"{'.'.join(path)}: {_short(value)}".ljust(min(widest, 72)) + f"  {layer}")


def _short(value: object) -> str:
    import json

    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 50 else text[:47] + "..."


def _leaves(value: object, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], object]]:
    if isinstance(value, dict) and value:
        return [leaf for key, item in value.items() for leaf in _leaves(item, (*path, key))]
    return [(path, value)]
