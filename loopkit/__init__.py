"""loopkit: recipes, components and measurements for looped language models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loopkit.api import build as build
    from loopkit.api import load as load
    from loopkit.api import load_recipe as load_recipe

__version__ = "0.1.0"

__all__ = ["__version__", "build", "load", "load_recipe"]


def __getattr__(name: str) -> Any:
    if name in ("build", "load", "load_recipe"):
        from loopkit import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
