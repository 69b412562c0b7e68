"""The page of a component: what it does, its equation, its options, its source, the recipes that use it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from docs.site.gallery.entry import RecipeEntry
from docs.site.reference.options import options_table
from docs.site.reference.source_text import class_text, path_of
from loopkit.registry.schema import Schema
from loopkit.report.pages.docstring import body, sections
from loopkit.report.pages.markdown import code, folded, link, paper_link, prose, table

TRAITS = {
    "needs": "needs",
    "provides": "provides",
    "lacks": "does not allow",
    "uses_total": "depends on the number of loops in all",
    "scale_invariant": "does not see the state's scale",
    "causal": "causal",
    "packages": "needs the package",
    "figures": "figures",
    "lengths": "lengths in optimizer steps",
    "examples": "option with the number of training examples",
    "ignores_input": "ignores the model's input",
    "before": "what runs from before an option did",
    "reads_tokens": "option by which it reads the tokens themselves",
}
"""Words for what a registration declares; others are shown under their own name."""


def component_page(schema: Schema, entries: Iterable[RecipeEntry], formats: Mapping[str, str], root: Path) -> str:
    """The page of a component.

    Args:
        schema: What is known of it.
        entries: Every recipe of the gallery.
        formats: Pages of the recipe format's sections.
        root: The project's folder, which source paths start from.
    """
    here = page_of(schema.kind, schema.name)
    said = sections(schema.doc)
    parts = [f"# {schema.kind}/{schema.name}", body(schema.doc) or "It has no description.", _facts(schema, here, root)]
    parts += ["## Options", options_table(schema.options, here, formats) if schema.options else "It has no options."]
    if schema.short:
        parts.append(f"A bare value in its place is short for `{schema.short}`.")
    parts += [f"## {name}\n\n{text}" for name, text in said.items()]
    parts += ["## Recipes using this", _recipes(schema, entries, here)]
    parts.append(folded("Source", code(class_text(schema.file, schema.qualname), "python")))
    return "\n\n".join(parts) + "\n"


def page_of(kind: str, name: str) -> str:
    """A component's page, from the root of the site."""
    return f"reference/{kind}/{name}.md"


def _facts(schema: Schema, here: str, root: Path) -> str:
    rows = [("kind", link(schema.kind, f"reference/{schema.kind}/index.md", here))]
    if paper := schema.traits.get("paper"):
        rows.append(("paper", paper_link(paper)))
    rows.append(("source", f"`{path_of(schema.file, root)}:{schema.line}`"))
    if schema.provider.package != "loopkit":
        rows.append(("from", prose(str(schema.provider))))
    for name, value in schema.traits.items():
        if name not in ("paper", "short"):
            rows.append((TRAITS.get(name, name.replace("_", " ")), _trait(value)))
    return table(("", ""), rows)


def _trait(value: object) -> str:
    if value is True:
        return "yes"
    if isinstance(value, set | frozenset | tuple | list | dict):
        return ", ".join(f"`{item}`" for item in sorted(map(str, value)))
    return f"`{value}`"


def _recipes(schema: Schema, entries: Iterable[RecipeEntry], here: str) -> str:
    using = [entry for entry in entries if (schema.kind, schema.name) in entry.components]
    if not using:
        return "No recipe in the gallery uses it."
    where = f"[Show them in the gallery](../../gallery/index.md?component={schema.kind}/{schema.name})"
    listed = "\n".join(
        f"- {link(prose(entry.name), entry.page, here)}: {prose(entry.recipe.description)}" for entry in using
    )
    return f"{listed}\n\n{where}"
