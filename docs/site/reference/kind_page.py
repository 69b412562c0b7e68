"""The page of a kind: a table of its components, and its contract."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from docs.site.reference.component_page import component_path
from docs.site.reference.contract import contract_markdown
from docs.site.reference.source_text import class_text, source_path
from loopkit.registry.contract import read_contract
from loopkit.registry.kinds import KINDS, Kind
from loopkit.registry.schema import Schema
from loopkit.report.pages.markdown import code, folded, link, paper_link, prose, table

INDEX = "reference/index.md"


def kinds_page(components: dict[str, Sequence[Schema]]) -> str:
    """Write the index of kinds and their components.

    Args:
        components: Schemas by kind.
    """
    rows = [
        (
            link(f"`{kind.name}`", f"reference/{kind.name}/index.md", INDEX),
            prose(kind.summary),
            ", ".join(
                link(schema.name, component_path(kind.name, schema.name), INDEX) for schema in components[kind.name]
            ),
        )
        for kind in KINDS.values()
    ]
    about = (
        "Every part of a looped model, of its training and of its evaluation is a component. The name of a *kind* is "
        "the key in a recipe, the file in `loopkit/components/`, the argument of `loopkit list`, and the page here. "
        "If a kind allows several components, its key is the plural, a map from name to component."
    )
    return f"# Components\n\n{about}\n\n" + table(("kind", "decides", "components"), rows) + "\n"


def kind_page(kind: Kind, components: Sequence[Schema], root: Path) -> str:
    """Write the page of a kind.

    Args:
        kind: The kind.
        components: Its components.
        root: Folder of the project; source paths are relative to it.
    """
    here = f"reference/{kind.name}/index.md"
    rows = [
        (
            link(f"`{schema.name}`", component_path(kind.name, schema.name), here),
            prose(schema.summary),
            paper_link(schema.traits["paper"]) if "paper" in schema.traits else "",
            "" if schema.provider.package == "loopkit" else prose(str(schema.provider)),
        )
        for schema in components
    ]
    num_columns = 4 if any(row[3] for row in rows) else 3
    heading = ("component", "purpose", "paper", "package")[:num_columns]
    contract = read_contract(kind.name)
    parts = [
        f"# {kind.name}",
        f"Decides {prose(kind.summary)}.",
        table(heading, [row[:num_columns] for row in rows]),
        "## Contract",
        contract_markdown(contract),
        "### Source",
        f"Entry-point group of plugins: `{kind.group}`. Source: `{source_path(contract.file, root)}:{contract.line}`.",
        folded(f"class {kind.contract}", code(class_text(contract.file, kind.contract), "python")),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"
