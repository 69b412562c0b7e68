"""The page of a file format whose sections are dataclasses: recipes and studies."""

from __future__ import annotations

from collections.abc import Mapping

from docs.site.reference.options import options_table
from loopkit.registry.schema import Schema
from loopkit.report.pages.docstring import body
from loopkit.report.pages.markdown import prose


def format_page(heading: str, introduction: str, sections: Mapping[str, Schema], page: str) -> str:
    """Write the page of a format, with its sections in the order of the source file.

    Args:
        heading: Name of the format.
        introduction: First paragraph, as Markdown.
        sections: Sections by class name; the last one in the file is the top level.
        page: Path of the page.
    """
    ordered = sorted(sections.values(), key=lambda schema: schema.line)
    top_level = ordered.pop()
    anchors = {schema.name: f"{page}#{anchor(schema.name)}" for schema in ordered}
    anchors[top_level.name] = page
    parts = [f"# {heading}", introduction, options_table(top_level.options, page, anchors)]
    for schema in ordered:
        parts += [f"## {prose(schema.name.lower())} {{ #{anchor(schema.name)} }}", body(schema.doc)]
        parts.append(options_table(schema.options, page, anchors))
        parts += [f"A bare value stands for the option `{schema.short}`."] if schema.short else []
        if one := schema.traits.get("exactly_one"):
            parts.append(f"Set exactly one of {', '.join(f'`{name}`' for name in one)}.")
    return "\n\n".join(parts) + "\n"


def anchor(name: str) -> str:
    """Return the anchor of a section on its page."""
    return f"section-{name.lower()}"
