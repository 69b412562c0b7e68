"""The page of a kind: its contract, and a table of its components."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from docs.site.reference.component_page import page_of
from docs.site.reference.contract import contract_markdown
from docs.site.reference.source_text import class_text, path_of
from loopkit.registry.contract import read_contract
from loopkit.registry.kinds import KINDS, Kind
from loopkit.registry.schema import Schema
from loopkit.report.pages.markdown import code, folded, link, paper_link, prose, table

INDEX = "reference/index.md"


def kinds_page(components: dict[str, Sequence[Schema]]) -> str:
    """All kinds, with the names of their components.

    Args:
        components: Schemas by kind.
    """
    rows = [
        (
            link(f"`{kind.name}`", f"reference/{kind.name}/index.md", INDEX),
            prose(kind.summary),
            ", ".join(link(schema.name, page_of(kind.name, schema.name), INDEX) for schema in components[kind.name]),
        )
        for kind in KINDS.values()
    ]
    about = (
        "Every part of a looped model, of its training and of its evaluation is a component. A *kind* is one word: the "
        "key in a recipe, the file in `loopkit/components/`, the argument of `loopkit list`, and the page here. Where "
        "several are allowed the key is the plural, a map from name to component."
    )
    return f"# Components\n\n{about}\n\n" + table(("kind", "decides", "components"), rows) + "\n"


def kind_page(kind: Kind, components: Sequence[Schema], root: Path) -> str:
    """The page of a kind.

    Args:
        kind: The kind.
        components: Its components.
        root: The project's folder, which source paths start from.
    """
    here = f"reference/{kind.name}/index.md"
    rows = [
        (
            link(f"`{schema.name}`", page_of(kind.name, schema.name), here),
            prose(schema.summary),
            paper_link(schema.traits["paper"]) if "paper" in schema.traits else "",
            "" if schema.provider.package == "loopkit" else prose(str(schema.provider)),
        )
        for schema in components
    ]
    shown = 4 if any(row[3] for row in rows) else 3
    heading = ("component", "what it does", "paper", "from")[:shown]
    contract = read_contract(kind.name)
    parts = [
        f"# {kind.name}",
        f"Decides {prose(kind.summary)}.",
        table(heading, [row[:shown] for row in rows]),
        "## The contract",
        contract_markdown(contract),
        "### Source",
        f"Entry-point group of plugins: `{kind.group}`. Source: `{path_of(contract.file, root)}:{contract.line}`.",
        folded(f"class {kind.contract}", code(class_text(contract.file, kind.contract), "python")),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"
