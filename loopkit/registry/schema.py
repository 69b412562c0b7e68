"""What loopkit knows of a component without running it: its options, their types, and where they are written."""

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
        type: Python annotation, which pydantic judges in strict JSON mode.
        text: The annotation as its author wrote it.
    """

    type: Any
    text: str = ""

    @property
    def takes_text(self) -> bool:
        """Whether any text will do."""
        return "str" in self.text.split(" | ")


@dataclass(frozen=True)
class Slot:
    """One component of a kind, or none where ``optional``."""

    kind: str
    optional: bool = False


@dataclass(frozen=True)
class SlotList:
    """A list of components of a kind, of ``at_least`` entries."""

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
    """One option: what may be written after its name.

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
        """Whether a recipe must give it."""
        return self.default is MISSING


@dataclass(frozen=True)
class Provider:
    """Who brings a component: a distribution, or a local file."""

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
        provider: Who brings it.
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
        """The option that a bare value stands for, if there is one."""
        return self.traits.get("short")

    @property
    def summary(self) -> str:
        """First sentence of the docstring, on one line."""
        return " ".join(self.doc.split("\n\n")[0].split())

    def load(self) -> type:
        """Import the module and return the class.

        Raises:
            Exception: Whatever the module raises; it is never replaced.
        """
        return load_class(self)
