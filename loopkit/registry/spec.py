"""A component chosen but not yet built: its kind, its name and its options."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loopkit.registry.catalog import catalog
from loopkit.registry.kinds import KINDS
from loopkit.registry.packages import MissingPackage, what_is_missing
from loopkit.registry.schema import Schema


@dataclass(frozen=True)
class Spec:
    """A component with all its options, built when its parent passes the wiring.

    A spec is a factory: ``spec(width=64)`` and ``spec.build(width=64)`` are the same.

    Args:
        kind: The kind of component.
        name: Its registered name, or ``package:name`` for a plugin's.
        options: Checked values; a slot holds another ``Spec``, or a list or map of them.
        local_schema: Schema of a component of a local plugin file; other schemas are looked up when needed.
    """

    kind: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    local_schema: Schema | None = field(default=None, compare=False, repr=False)

    @property
    def schema(self) -> Schema:
        """Schema of the component, read without importing it."""
        return self.local_schema if self.local_schema is not None else catalog().get(self.kind, self.name)

    @property
    def target(self) -> type:
        """The component's class; imports its module."""
        return self.schema.load()

    @property
    def traits(self) -> Mapping[str, Any]:
        """Traits of the registration, read without importing the component."""
        return self.schema.traits

    def build(self, **wiring: Any) -> Any:
        """Construct the component.

        Args:
            wiring: Arguments of the parent by name; the constructor receives those that it lists.

        Raises:
            TypeError: If a name is not wiring of this kind, or a parameter of the constructor is missing.
            MissingPackage: If a package that the component needs is not installed.
        """
        allowed = KINDS[self.kind].wiring
        if foreign := set(wiring) - set(allowed):
            raise TypeError(
                f"{', '.join(sorted(foreign))}: not wiring of kind {self.kind!r} ({', '.join(allowed) or 'none'})"
            )
        if (what := what_is_missing(self.schema)) is not None:
            raise MissingPackage(what)
        cls = self.target
        accepted = inspect.signature(cls).parameters
        return cls(**{name: value for name, value in wiring.items() if name in accepted}, **self.options)

    __call__ = build

    def plain(self) -> dict[str, Any]:
        """Return the spec as a recipe would write it, with ``type`` first; paths become text."""
        return {"type": self.name} | {name: _plain(value) for name, value in self.options.items()}


class Use:
    """A component named as the default of a slot; a factory once ``register`` has set its kind."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.kind: str | None = None

    def __call__(self, **wiring: Any) -> Any:
        if self.kind is None:
            raise TypeError(f"use({self.name!r}) is only allowed as a default of a registered component's constructor")
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


def _plain(value: Any) -> Any:
    if isinstance(value, Spec):
        return value.plain()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)
