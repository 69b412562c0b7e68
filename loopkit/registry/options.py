"""The vocabulary in which a component's constructor states its options.

Everything here is importable without torch. The names are also what ``registry/source.py`` understands when it reads a
constructor as text, so an alias added here must be added to its table (a test compares the two).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, TypeVar

from annotated_types import Ge, Le, Lt

T = TypeVar("T")

Factory = Callable[..., T]
"""A slot for a component of kind ``T``: calling it with the kind's wiring builds one."""

Fraction = Annotated[float, Ge(0), Lt(1)]
"""A share in [0, 1), such as a dropout rate."""

Share = Annotated[float, Ge(0), Le(1)]
"""A share in [0, 1]."""


@dataclass(frozen=True)
class Divides:
    """Bound on an integer option: it must divide the option or wiring of this name."""

    name: str


@dataclass(frozen=True)
class AtMost:
    """Bound on a number: it may not exceed the option or wiring of this name."""

    name: str
