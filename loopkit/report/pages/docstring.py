"""Convert a docstring to Markdown: prose, equations as code blocks, sections by name."""

from __future__ import annotations

import re
from collections.abc import Iterator

from loopkit.report.pages.markdown import code, prose

SECTION = re.compile(r"(Args|Attributes|Shapes|Raises|Returns|Paper|Letters|Yields): *(.*)$")


def body(doc: str) -> str:
    """Convert the part of a docstring before its sections to Markdown."""
    return "\n\n".join(_block(block) for block in _blocks("\n".join(_before_sections(doc))))


def sections(doc: str) -> dict[str, str]:
    """Convert the sections of a docstring except ``Args`` and ``Attributes`` to Markdown, by name."""
    contents: dict[str, list[str]] = {}
    name = ""
    for line in doc.splitlines():
        if match := SECTION.match(line):
            name = match[1]
            contents[name] = [match[2]] if match[2] else []
        elif name:
            contents[name].append(line[4:] if line.startswith("    ") else line)
    texts = {name: "\n".join(lines).strip() for name, lines in contents.items() if name not in ("Args", "Attributes")}
    return {name: "\n\n".join(_block(block) for block in _blocks(text)) for name, text in texts.items() if text}


def plain(doc: str) -> str:
    """Format the part of a docstring before its sections for a terminal, one line per paragraph."""
    blocks = _blocks("\n".join(_before_sections(doc)))
    return "\n\n".join(block if is_equation(block) else unbroken(block) for block in blocks)


def unbroken(text: str) -> str:
    """Join a paragraph into one line and remove the backquotes around code."""
    return " ".join(text.split()).replace("``", "")


def _before_sections(doc: str) -> Iterator[str]:
    for line in doc.splitlines():
        if SECTION.match(line):
            return
        yield line


def _blocks(text: str) -> list[str]:
    return [block for block in re.split(r"\n\s*\n", text) if block.strip()]


def _block(block: str) -> str:
    lines = block.splitlines()
    if is_equation(block):
        indent = min(len(line) - len(line.lstrip()) for line in lines)
        return code("\n".join(line[indent:] for line in lines))
    return prose(" ".join(line.strip() for line in lines))


def is_equation(block: str) -> bool:
    """Whether a paragraph is an equation: indented, or not a sentence and with mathematical signs."""
    if all(line.startswith("    ") for line in block.splitlines()):
        return True
    is_sentence = block.rstrip().endswith((".", ":", "!", "?"))
    return not is_sentence and re.search(r"[=~←²√·]|\w[ ]?[(+]", block) is not None
