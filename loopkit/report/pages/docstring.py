"""A docstring as Markdown: prose as prose, equations as blocks, its closing sections under their names."""

from __future__ import annotations

import re
from collections.abc import Iterator

from loopkit.report.pages.markdown import code, prose

SECTION = re.compile(r"(Args|Attributes|Shapes|Raises|Returns|Paper|Letters|Yields): *(.*)$")


def body(doc: str) -> str:
    """What a docstring says before its sections, as Markdown."""
    return "\n\n".join(_block(block) for block in _blocks("\n".join(_before_sections(doc))))


def sections(doc: str) -> dict[str, str]:
    """Its sections but ``Args`` and ``Attributes``, as Markdown, by name."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in doc.splitlines():
        if match := SECTION.match(line):
            name = match[1]
            found[name] = [match[2]] if match[2] else []
        elif name:
            found[name].append(line[4:] if line.startswith("    ") else line)
    texts = {name: "\n".join(lines).strip() for name, lines in found.items() if name not in ("Args", "Attributes")}
    return {name: "\n\n".join(_block(block) for block in _blocks(text)) for name, text in texts.items() if text}


def plain(doc: str) -> str:
    """What a docstring says before its sections, for a terminal: a line for each paragraph, equations as they are."""
    blocks = _blocks("\n".join(_before_sections(doc)))
    return "\n\n".join(block if is_equation(block) else unbroken(block) for block in blocks)


def unbroken(text: str) -> str:
    """A paragraph in one line, without the marks around code."""
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
    """Whether a paragraph is a formula: it is indented, or it is no sentence and has the signs of one."""
    if all(line.startswith("    ") for line in block.splitlines()):
        return True
    sentence = block.rstrip().endswith((".", ":", "!", "?"))
    return not sentence and re.search(r"[=~←²√·]|\w[ ]?[(+]", block) is not None
