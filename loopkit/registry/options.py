"""The vocabulary in which a component's constructor states its options.

Everything here is importable without torch. The names are also what ``registry/source.py`` understands when it reads a
constructor as text, so an alias added here must be added to its table (a test compares the two).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

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


class Use:
    """A component named as the default of a slot; ``register`` tells it its kind, then it is a factory."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.kind: str | None = None

    def __call__(self, **wiring: Any) -> Any:
        from loopkit.registry.spec import Spec

        if self.kind is None:
            raise TypeError(f"use({self.name!r}) stands outside of a registered component's constructor")
        return Spec(self.kind, self.name).build(**wiring)

    def __repr__(self) -> str:
        return f"use({self.name!r})"


def use(name: str) -> Any:
    """Name the component that fills a slot by default.

    A default is a name and nothing else: options in it would make ``norm: rmsnorm`` in a recipe ambiguous.

    Args:
        name: A registered name of the slot's kind, such as ``"rmsnorm"``.
    """
    return Use(name)
