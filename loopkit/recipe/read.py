"""Read strict YAML 1.2, with a position for every value; aliases, tags and duplicate keys are errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import yaml

from loopkit.recipe.node import Node, Origin, Problem, RecipeError

LARGEST = 1_000_000
DEEPEST = 40
MOST_VALUES = 5_000
"""Keys and entries of one document: a recipe written out in full has some hundreds."""

_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL, _HEX = re.compile(r"0o[0-7]+"), re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL = {"": None, "~": None, "null": None, "true": True, "false": False}
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


def plain_scalar(text: str) -> Any:
    """Return the value of an unquoted scalar in YAML 1.2's core schema: ``3e-4`` a float, ``no`` text, ``010`` ten."""
    if text.lower() in _SPECIAL and text in (text.lower(), text.capitalize(), text.upper()):
        return _SPECIAL[text.lower()]
    if len(text) > 400:  # longer digits are text; int() would refuse or crawl
        return text
    if _INT.fullmatch(text):
        return int(text)
    if _OCTAL.fullmatch(text):
        return int(text[2:], 8)
    if _HEX.fullmatch(text):
        return int(text[2:], 16)
    if _FLOAT.fullmatch(text) or _NOT_FINITE.fullmatch(text):
        return float(text.replace(".inf", "inf").replace(".Inf", "inf").replace(".INF", "inf").replace(".nan", "nan"))
    return text


def read_file(file: Path, shown: str = "") -> Node:
    """Read a recipe file into nodes.

    Args:
        file: The file.
        shown: Its name in messages; the path as given where empty.

    Raises:
        RecipeError: If it cannot be read, is not UTF-8, is not YAML, or is not a map at the top.
    """
    shown = shown or str(file)
    top = Origin(shown, file=shown, folder=file.resolve().parent)
    try:
        with file.open("rb") as opened:
            content = opened.read(LARGEST + 1)
    except IsADirectoryError:
        _refuse(top, "is a folder, not a recipe file")
    except FileNotFoundError:
        _refuse(top, "there is no such file", "check the path; loopkit list recipe lists the shipped recipes")
    except (OSError, ValueError) as error:
        _refuse(top, f"cannot be read: {getattr(error, 'strerror', None) or error}")
    if len(content) > LARGEST:
        _refuse(top, f"is longer than {LARGEST:,} bytes", "give a recipe file")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        _refuse(Origin(shown, shown, line), f"is not UTF-8 (byte {error.start})", "save it as UTF-8")
    node = read_text(text, top)
    if not isinstance(node.value, dict):
        contents = "nothing" if node.value is None else "a list" if isinstance(node.value, list) else "a single value"
        _refuse(top, f"contains {contents}, not a map of sections", "start with 'loopkit: 2'")
    return node


def read_text(text: str, origin: Origin) -> Node:
    """Read YAML text into nodes.

    Args:
        text: One YAML document.
        origin: Of the whole; lines are filled in where it names a file.

    Raises:
        RecipeError: With the line, if the text is not the YAML that recipes are written in.
    """
    reader = _Reader(text, origin)
    try:
        return reader.document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(filter(None, (error.context, error.problem)))
        origin = reader.at(mark.line if mark else 0)
        if "\t" in origin.text[: len(origin.text) - len(origin.text.lstrip())]:
            _refuse(origin, "is not valid YAML: there is a tab in the indentation", "indent with spaces, not tabs")
        _refuse(origin, f"is not valid YAML: {what}")
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n")
        _refuse(reader.at(line), f"is not valid YAML: character {error.character!r} is not allowed")


def _refuse(origin: Origin, message: str, hint: str = "") -> NoReturn:
    raise RecipeError([Problem(origin, (), message, hint)]) from None


class _Reader:
    def __init__(self, text: str, origin: Origin) -> None:
        self.lines = text.splitlines()
        self.origin = origin
        self.left = MOST_VALUES
        self.events: Iterator[yaml.Event] = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))

    def of(self, event: yaml.Event) -> Origin:
        """Return the origin of the place at which an event starts."""
        mark = event.start_mark
        return self.at(mark.line, mark.column) if mark else self.at(0)

    def at(self, line: int, column: int = 0) -> Origin:
        """Return the origin of a place; lines and columns are counted from zero."""
        if not self.origin.file:
            return self.origin
        text = self.lines[line] if line < len(self.lines) else ""
        return Origin(self.origin.layer, self.origin.file, line + 1, text, self.origin.folder, column)

    def document(self) -> Node:
        next(self.events)
        event = next(self.events)
        if isinstance(event, yaml.StreamEndEvent):
            return Node(None, self.origin)
        node = self.value(next(self.events), depth=0)
        next(self.events)
        if not isinstance(extra := next(self.events), yaml.StreamEndEvent):
            _refuse(self.of(extra), "a recipe is one YAML document; another starts here")
        return node

    def value(self, event: yaml.Event, depth: int, origin: Origin | None = None) -> Node:
        here = self.of(event)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            _refuse(here, "anchors and aliases are not supported", "write the value out, or use 'extends'")
        if (tag := getattr(event, "tag", None)) not in (None, "!"):
            _refuse(here, f"tags such as {tag!r} are not supported")
        self.left -= 1
        if self.left < 0:
            _refuse(here, f"has more than {MOST_VALUES:,} values")
        if depth > DEEPEST:
            _refuse(here, f"is nested more than {DEEPEST} levels deep")
        if isinstance(event, yaml.ScalarEvent):
            return Node(plain_scalar(event.value) if event.implicit[0] else event.value, origin or here)
        if isinstance(event, yaml.SequenceStartEvent):
            items = []
            while not isinstance(item := next(self.events), yaml.SequenceEndEvent):
                items.append(self.value(item, depth + 1))
            return Node(items, origin or here)
        return self.mapping(origin or here, depth)

    def mapping(self, origin: Origin, depth: int) -> Node:
        entries: dict[str, Node] = {}
        while not isinstance(key := next(self.events), yaml.MappingEndEvent):
            here = self.of(key)
            if not isinstance(key, yaml.ScalarEvent) or getattr(key, "anchor", None) or key.tag not in (None, "!"):
                self.value(key, depth + 1)  # names anchors and tags
                _refuse(here, "a key must be a plain word")
            if key.value in entries:
                first = entries[key.value].origin
                _refuse(here, f"key '{key.value[:80]}' is written twice", f"the first is in line {first.line}")
            entries[key.value] = self.value(next(self.events), depth + 1, here)
        return Node(entries, origin)


class _Dumper(yaml.SafeDumper):
    """Quotes text that YAML 1.2 would read as another type, and writes no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if plain_scalar(text) == text and isinstance(plain_scalar(text), str) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def yaml_text(values: Any) -> str:
    """Write plain data as YAML that reads back as the same data under YAML 1.2."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
