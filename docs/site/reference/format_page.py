"""The page of a file format whose sections are dataclasses read from source: recipes, and studies."""

from __future__ import annotations

from collections.abc import Mapping

from docs.site.reference.options import options_table
from loopkit.registry.schema import Schema
from loopkit.report.pages.docstring import body
from loopkit.report.pages.markdown import prose


def format_page(heading: str, about: str, sections: Mapping[str, Schema], page: str, other: Mapping[str, str]) -> str:
    """The page of a format, a section below the other in the order of its file.

    Args:
        heading: What the format is called.
        about: What a reader should know first, as Markdown.
        sections: Its sections by class name; the last one in the file is the whole.
        page: Where it goes.
        other: Pages of sections that stand elsewhere.
    """
    ordered = sorted(sections.values(), key=lambda schema: schema.line)
    whole = ordered.pop()
    places = dict(other) | {schema.name: f"{page}#{anchor(schema.name)}" for schema in ordered}
    places[whole.name] = page
    parts = [f"# {heading}", about, options_table(whole.options, page, places)]
    for schema in ordered:
        parts += [f"## {_words(schema.name)} {{ #{anchor(schema.name)} }}", body(schema.doc)]
        parts.append(options_table(schema.options, page, places))
        parts += [f"A bare value in its place is short for `{schema.short}`."] if schema.short else []
        if one := schema.traits.get("exactly_one"):
            parts.append(f"Exactly one of {', '.join(f'`{name}`' for name in one)} is given.")
    return "\n\n".join(parts) + "\n"


def _words(name: str) -> str:
    return prose(name.lower())


def anchor(name: str) -> str:
    """Where a section stands on its page."""
    return f"section-{name.lower()}"
