"""``@register``: a class becomes a component, and its constructor its schema."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from loopkit.registry.kinds import BY_CONTRACT, KINDS
from loopkit.registry.spec import Use
from loopkit.registry.traits import check_registration

C = TypeVar("C", bound=type)

_LOADED: dict[tuple[str, str, str], type] = {}
_FACTORY = re.compile(r"Factory\[(?:\w+\.)*(\w+)\]")


@dataclass(frozen=True)
class Registration:
    """The registration of a class."""

    kind: str
    name: str
    traits: dict[str, Any] = field(default_factory=dict)


def register(kind: str, name: str, **traits: Any) -> Callable[[C], C]:
    """Register a class as the component ``name`` of ``kind``.

    The call must be a literal: loopkit reads it as text, so that checking a recipe runs no plugin.

    Args:
        kind: One of ``loopkit.registry.KINDS``.
        name: How recipes call it: lower case, digits and underscores.
        traits: Facts about the component, all literals; ``loopkit.registry.traits.TRAITS`` holds their meaning.

    Raises:
        TypeError: If the kind, name or a trait is unknown, or the constructor cannot serve as a schema.
    """
    check_registration(kind, name, traits)

    def decorate(cls: C) -> C:
        check_constructor(cls, kind)
        cls.registration = Registration(kind, name, traits)  # type: ignore[attr-defined]
        _LOADED[kind, name, cls.__module__] = cls
        return cls

    return decorate


def check_constructor(cls: type, kind: str) -> None:
    """Raise an error that names the parameter if a constructor cannot be read as a schema."""
    where = f"{cls.__module__}.{cls.__qualname__}.__init__"
    if cls.__init__ is object.__init__:  # type: ignore[misc]
        return
    for parameter in list(inspect.signature(cls.__init__).parameters.values())[1:]:  # type: ignore[misc]
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            # torch's and object's own catch-all constructors take nothing of ours
            if cls.__init__.__module__.startswith("torch."):  # type: ignore[misc]
                return
            raise TypeError(f"{where}: {parameter} is not allowed; declare each option by name")
        if parameter.annotation is parameter.empty:
            raise TypeError(f"{where}: parameter {parameter.name!r} has no annotation")
        if parameter.kind is parameter.KEYWORD_ONLY:
            _bind_default(parameter)
        elif parameter.name not in KINDS[kind].wiring:
            wiring = ", ".join(KINDS[kind].wiring) or "none"
            raise TypeError(
                f"{where}: positional parameter {parameter.name!r} is not wiring of kind {kind!r} ({wiring}); "
                "an option must stand after '*'"
            )


def _bind_default(parameter: inspect.Parameter) -> None:
    """Set the kind of a ``use(...)`` default to that of its slot."""
    if isinstance(parameter.default, Use):
        match = _FACTORY.search(str(parameter.annotation))
        if match is None or match[1] not in BY_CONTRACT:
            raise TypeError(f"use(...) is the default of {parameter.name!r}, which is not a Factory[...] of a kind")
        parameter.default.kind = BY_CONTRACT[match[1]].name


def registered_modules() -> set[str]:
    """Return the modules of all classes that have registered themselves."""
    return {module for _, _, module in _LOADED}


def loaded(kind: str, name: str, module: str) -> type | None:
    """Return the registered class, if its module has been imported."""
    return _LOADED.get((kind, name, module))
