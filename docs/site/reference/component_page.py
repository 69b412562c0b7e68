"""The page of a component: description, equation, options, source, and the recipes that use it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from docs.site.gallery.entry import RecipeEntry
from docs.site.reference.options import options_table
from docs.site.reference.source_text import class_text, source_path
from loopkit.registry.schema import Schema
from loopkit.report.pages.docstring import body, sections
from loopkit.report.pages.markdown import code, folded, link, paper_link, prose, table

TRAITS = {
    "needs": "needs",
    "provides": "provides",
    "lacks": "does not allow",
    "uses_total": "depends on the total number of loops",
    "stops": "may end sequences in training",
    "uses_at": "reads the last loop differently",
    "scale_invariant": "invariant to the scale of the state",
    "causal": "causal",
    "packages": "needs the package",
    "figures": "metrics",
    "lengths": "lengths in optimizer steps",
    "examples": "option with the number of training examples",
    "ignores_input": "does not depend on the input",
    "before": "behaviour of runs older than an option",
    "reads_tokens": "option with which it reads tokens",
}
"""Labels of traits; others are shown by name."""


def component_page(schema: Schema, entries: Iterable[RecipeEntry], formats: Mapping[str, str], root: Path) -> str:
    """Write the page of a component.

    Args:
        schema: Its schema.
        entries: All recipes of the gallery.
        formats: Pages of the sections of the recipe format.
        root: Folder of the project; source paths are relative to it.
    """
    here = component_path(schema.kind, schema.name)
    parts = [f"# {schema.kind}/{schema.name}", body(schema.doc) or "No description.", _facts(schema, here, root)]
    parts += ["## Options", options_table(schema.options, here, formats) if schema.options else "No options."]
    if schema.short:
        parts.append(f"A bare value stands for the option `{schema.short}`.")
    parts += [f"## {name}\n\n{text}" for name, text in sections(schema.doc).items()]
    parts += ["## Recipes with this component", _recipes(schema, entries, here)]
    parts.append(folded("Source", code(class_text(schema.file, schema.qualname), "python")))
    return "\n\n".join(parts) + "\n"


def component_path(kind: str, name: str) -> str:
    """Return the path of a component's page, from the root of the site."""
    return f"reference/{kind}/{name}.md"


def _facts(schema: Schema, here: str, root: Path) -> str:
    rows = [("kind", link(schema.kind, f"reference/{schema.kind}/index.md", here))]
    if paper := schema.traits.get("paper"):
        rows.append(("paper", paper_link(paper)))
    rows.append(("source", f"`{source_path(schema.file, root)}:{schema.line}`"))
    if schema.provider.package != "loopkit":
        rows.append(("from", prose(str(schema.provider))))
    for name, value in schema.traits.items():
        if name not in ("paper", "short"):
            rows.append((TRAITS.get(name, name.replace("_", " ")), _format_trait(value)))
    return table(("", ""), rows)


def _format_trait(value: object) -> str:
    if value is True:
        return "yes"
    if isinstance(value, set | frozenset | tuple | list | dict):
        return ", ".join(f"`{item}`" for item in sorted(map(str, value)))
    return f"`{value}`"


def _recipes(schema: Schema, entries: Iterable[RecipeEntry], here: str) -> str:
    using = [entry for entry in entries if (schema.kind, schema.name) in entry.components]
    if not using:
        return "No recipe of the gallery uses it."
    gallery = f"[Show them in the gallery](../../gallery/index.md?component={schema.kind}/{schema.name})"
    links = "\n".join(
        f"- {link(prose(entry.name), entry.page, here)}: {prose(entry.recipe.description)}" for entry in using
    )
    return f"{links}\n\n{gallery}"
