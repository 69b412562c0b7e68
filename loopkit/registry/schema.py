"""Schemas of components and sections: options, their types, and their places in source text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loopkit.registry.loading import load_class


class Missing:
    """The default of an option that has none."""

    def __repr__(self) -> str:
        return "required"


MISSING = Missing()


@dataclass(frozen=True)
class Leaf:
    """A plain value.

    Args:
        type: Python annotation, which pydantic validates in strict JSON mode.
        text: The annotation as in the source text.
    """

    type: Any
    text: str = ""

    @property
    def takes_text(self) -> bool:
        """Whether any text is accepted."""
        return "str" in self.text.split(" | ")


@dataclass(frozen=True)
class Slot:
    """One component of a kind, or None if ``optional``."""

    kind: str
    optional: bool = False


@dataclass(frozen=True)
class SlotList:
    """A list of at least ``at_least`` components of a kind."""

    kind: str
    at_least: int = 0


@dataclass(frozen=True)
class SlotMap:
    """A map from a name to a component of a kind; the name is the type unless ``type`` is set."""

    kind: str


@dataclass(frozen=True)
class SectionRef:
    """A fixed part of the recipe format, such as ``train``; absent is empty, or None where ``optional``."""

    name: str
    optional: bool = False


@dataclass(frozen=True)
class SectionMap:
    """A map from free names to partial recipes: ``profiles``."""

    name: str


Annotation = Leaf | Slot | SlotList | SlotMap | SectionRef | SectionMap


@dataclass(frozen=True)
class Option:
    """One option of a component or a section.

    Args:
        name: The key in a recipe.
        annotation: What it accepts.
        default: A literal, the name of a component for a slot, or ``MISSING``.
        doc: Its line under ``Args:``.
        line: Where it is written, in its schema's file.
    """

    name: str
    annotation: Annotation
    default: Any = MISSING
    doc: str = ""
    line: int = 0

    @property
    def required(self) -> bool:
        """Whether a recipe must set it."""
        return self.default is MISSING


@dataclass(frozen=True)
class Provider:
    """The distribution or the local file that a component comes from."""

    package: str
    version: str
    module: str

    def __str__(self) -> str:
        return f"{self.package} {self.version}".strip()


@dataclass(frozen=True)
class Schema:
    """A component or a section of the recipe format, as read from source text.

    Args:
        kind: The kind, or ``"section"``.
        name: Registered name, or the section's class name.
        qualname: Name of the class in its module.
        options: By name, in the order of the constructor.
        wiring: Positional parameters.
        traits: Literals of the registration, or the class variables of a section.
        doc: The class's docstring.
        file: Source file.
        line: Line of the class.
        provider: Where it comes from.
    """

    kind: str
    name: str
    qualname: str
    options: Mapping[str, Option]
    wiring: tuple[str, ...]
    traits: Mapping[str, Any]
    doc: str
    file: Path
    line: int
    provider: Provider = field(default_factory=lambda: Provider("loopkit", "", ""))

    @property
    def short(self) -> str | None:
        """The option that a bare value sets, if there is one."""
        return self.traits.get("short")

    @property
    def summary(self) -> str:
        """First sentence of the docstring, on one line."""
        return " ".join(self.doc.split("\n\n")[0].split())

    def load(self) -> type:
        """Import the module and return the class.

        Raises:
            Exception: Any exception of the module, unchanged.
        """
        return load_class(self)
