"""A report as blocks, rendered as Markdown with separate plots or as one HTML file that contains them."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Heading:
    """A heading; level 1 is the title of the report."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class TextBlock:
    """A paragraph; ``code`` and **bold** as in Markdown."""

    text: str


@dataclass(frozen=True)
class TableBlock:
    """A table.

    Args:
        heading: Heading of each column.
        rows: Rows with a cell for each column.
        is_text: Whether all columns are text; otherwise, in tables of three or more columns, all but the first are
            numbers.
    """

    heading: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    is_text: bool = False

    @property
    def is_numeric(self) -> bool:
        """Whether the columns after the first are right-aligned."""
        return len(self.heading) > 2 and not self.is_text


@dataclass(frozen=True)
class Plot:
    """An SVG file.

    Args:
        path: Path relative to the folder of the report.
        caption: Caption and text alternative.
    """

    path: str
    caption: str


Block = Heading | TextBlock | TableBlock | Plot


def to_markdown(blocks: Iterable[Block]) -> str:
    """Render blocks as Markdown."""
    return "\n\n".join(_markdown(block) for block in blocks) + "\n"


def _markdown(block: Block) -> str:
    match block:
        case Heading(text=text, level=level):
            return f"{'#' * level} {text}"
        case TextBlock(text=text):
            return text
        case Plot(path=path, caption=caption):
            return f"![{caption}]({path})"
    align = ("---", *["---:" if block.is_numeric else "---"] * (len(block.heading) - 1))
    lines = [block.heading, align, *block.rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


STYLE = """
:root { color-scheme: light dark; --ink: #24292e; --soft: #4a545e; --paper: #fffffe; --edge: #d0d7de; --band: #f3f5f7 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ec; --soft: #b3bcc6; --paper: #10141a; --edge: #333c46; --band: #1a2028 }
}
body { font: 15px/1.5 system-ui, "Helvetica Neue", Arial, "DejaVu Sans", sans-serif; color: var(--ink);
  background: var(--paper); max-width: 56rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem; overflow-wrap: anywhere } h2 { font-size: 1.2rem; margin-top: 2rem }
.scroll { overflow-x: auto } table { border-collapse: collapse; font-size: .87rem }
th, td { border-bottom: 1px solid var(--edge); padding: .3rem .7rem; text-align: left; vertical-align: top }
table.numbers :is(th, td):not(:first-child) { text-align: right; font-variant-numeric: tabular-nums }
table.numbers td, td:first-child { white-space: nowrap }
thead th { vertical-align: bottom } table.words td:not(:first-child) { min-width: 8.5rem }
tbody tr:nth-child(even) { background: var(--band) } table:not(.words) td:last-child { overflow-wrap: anywhere }
:is(.numbers, .words) :is(th, td):first-child { position: sticky; left: 0; background: var(--paper) }
:is(.numbers, .words) tr:nth-child(even) td:first-child { background: var(--band) }
@media (max-width: 40rem) {
  .words td:first-child { white-space: normal; min-width: 7rem; max-width: 8rem; overflow-wrap: anywhere }
}
code { font: .87em ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace }
figure { margin: 1rem 0 } figure svg { width: 100%; height: auto } figcaption { color: var(--soft); font-size: .87rem }
@media print { body { max-width: none; margin: 0 } h2 { break-after: avoid } figure, tr { break-inside: avoid } }
"""


def to_html(blocks: Sequence[Block], folder: Path) -> str:
    """Render blocks as one self-contained HTML file, plots included.

    Args:
        blocks: The report.
        folder: The folder of its plots.
    """
    titles = [block.text for block in blocks if isinstance(block, Heading)]
    body = "\n".join(_html(block, folder) for block in blocks)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{html.escape(titles[0])}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _html(block: Block, folder: Path) -> str:
    match block:
        case Heading(text=text, level=level):
            return f"<h{level}>{html.escape(text)}</h{level}>"
        case TextBlock(text=text):
            return f"<p>{_inline(text)}</p>"
        case Plot(path=path, caption=caption):
            return (
                f"<figure>\n{_svg(folder / path, caption)}\n<figcaption>{html.escape(caption)}</figcaption>\n</figure>"
            )
    head = "".join(
        f'<th scope="col">{_breakable(_inline(cell))}</th>' if cell else "<td></td>" for cell in block.heading
    )
    header = f"<thead><tr>{head}</tr></thead>" if any(block.heading) else ""
    render = (lambda cell: _breakable(_inline(cell))) if block.is_text else _inline
    rows = "".join("<tr>" + "".join(f"<td>{render(cell)}</td>" for cell in row) + "</tr>\n" for row in block.rows)
    attribute = ' class="numbers"' if block.is_numeric else ' class="words"' if block.is_text else ""
    return f'<div class="scroll" tabindex="0"><table{attribute}>{header}<tbody>\n{rows}</tbody></table></div>'


def _breakable(name: str) -> str:
    """Allow line breaks after a dash, an underscore or the dot of a key, because names of runs are long."""
    return re.sub(r"([_-](?=\w)|\.(?=[a-z]))", r"\1<wbr>", name)


def _inline(text: str) -> str:
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False))
    return re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", text)


def _svg(file: Path, caption: str) -> str:
    """Read an SVG as an HTML element: without XML prologue and metadata, with a text alternative."""
    text = file.read_text(encoding="utf-8")
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    return text.replace("<svg", f'<svg role="img" aria-label="{html.escape(caption)}"', 1).rstrip()
