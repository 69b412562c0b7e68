"""Markdown building blocks of pages: cells, tables, code, links."""

from __future__ import annotations

import html
import json
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from loopkit.recipe.difference import ABSENT


def cell(text: str) -> str:
    """Escape text for a cell of a table; bars inside code need no escape."""
    parts = " ".join(text.split()).split("`")
    return "`".join(part if index % 2 else part.replace("|", "\\|") for index, part in enumerate(parts))


def prose(text: str) -> str:
    """Escape prose of a docstring or recipe so that it is shown literally; ``code`` becomes code."""
    parts = text.replace("``", "`").split("`")
    return "`".join(part if index % 2 else _escape(part) for index, part in enumerate(parts))


def _escape(text: str) -> str:
    for sign in "\\*_[]":
        text = text.replace(sign, "\\" + sign)
    return html.escape(text, quote=False)


def table(heading: Sequence[str], rows: Sequence[Sequence[str]], numbers: bool = False) -> str:
    """Format a Markdown table; with ``numbers`` all columns but the first are right-aligned."""
    align = ["---", *[("--:" if numbers else "---") for _ in heading[1:]]]
    lines = [[cell(text) for text in heading], align, *([cell(text) for text in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def code(text: str, language: str = "text", heading: str = "") -> str:
    """Format a fenced code block; its fence is longer than any fence in the text."""
    fence = "```"
    while fence in text:
        fence += "`"
    title = f' title="{heading}"' if heading else ""
    return f"{fence}{language}{title}\n{text.rstrip()}\n{fence}"


def folded(summary: str, body: str) -> str:
    """Format a collapsed block."""
    indented = "\n".join(f"    {line}" if line.strip() else "" for line in body.splitlines())
    return f'??? note "{summary.replace(chr(34), chr(39))}"\n\n{indented}'


def literal(value: Any) -> str:
    """Format a value in the syntax of recipes."""
    return json.dumps(value, ensure_ascii=False)


def flow(value: Any) -> str:
    """Format a value as YAML on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    return value if isinstance(value, str) and value.replace("_", "").isalnum() else literal(value)


def recipe_value(value: Any) -> str:
    """Format a value as a recipe writes it; empty if the recipe does not have the key."""
    if value is ABSENT:
        return ""
    if isinstance(value, Mapping) and set(value) == {"type"}:
        return str(value["type"])
    return flow(value) if isinstance(value, Mapping) else literal(value)


def printed(value: Any) -> str:
    """Format a number as a paper prints it, without additional digits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return prose(str(value))
    if isinstance(value, int):
        return f"{value:,}"
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return f"{value:,.10g}"
    digits, power = f"{value:.9e}".split("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(power)}"


def link(text: str, page: str, here: str) -> str:
    """Format a link from one page to another; both are paths from the root of the site."""
    return f"[{text}]({relative(page, here)})"


def relative(page: str, here: str) -> str:
    """Return the path of a page relative to another page."""
    return posixpath.relpath(page, posixpath.dirname(here) or ".")


def paper_link(paper: str) -> str:
    """Format a paper, with a link if it is on arXiv."""
    kind, _, number = paper.partition(":")
    if kind.lower() != "arxiv":
        return prose(paper)
    return f"[{paper}](https://arxiv.org/abs/{number.split()[0]})"
