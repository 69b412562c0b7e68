"""loopkit: recipes, components and measurements for looped language models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loopkit.api import build as build
    from loopkit.api import evaluate as evaluate
    from loopkit.api import generate as generate
    from loopkit.api import load as load
    from loopkit.api import load_recipe as load_recipe
    from loopkit.api import train as train

__version__ = "0.1.0"

__all__ = ["__version__", "build", "evaluate", "generate", "load", "load_recipe", "train"]


def __getattr__(name: str) -> Any:
    """Import ``loopkit.api`` when one of its functions is first used, so that ``import loopkit`` stays fast."""
    if name in __all__:
        from loopkit import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
