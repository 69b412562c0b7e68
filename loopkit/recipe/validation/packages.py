"""Packages that a recipe needs and this machine lacks: no fault of the recipe, which may run elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from loopkit.recipe.node import Path
from loopkit.recipe.recipe import Recipe, format_sections
from loopkit.registry.packages import MissingPackage, what_is_missing
from loopkit.registry.schema import SectionRef, SlotMap


def package_cautions(recipe: Recipe, *, exclude: Collection[str] = ()) -> Iterator[str]:
    """Yield key and remedy of each component with a missing package, except for kinds in ``exclude``."""
    for path, spec in recipe.specs.items():
        if spec.kind not in exclude and (what := what_is_missing(spec.schema)) is not None:
            yield f"{'.'.join(path)}: {what}{_without(path)}"


def require_packages(recipe: Recipe, *, exclude: Collection[str] = ()) -> None:
    """Refuse to start a run that would fail when a component is first needed.

    Args:
        recipe: The resolved recipe.
        exclude: Kinds that are checked elsewhere.

    Raises:
        MissingPackage: If a package is not installed, naming all that are not.
    """
    if lines := list(package_cautions(recipe, exclude=exclude)):
        raise MissingPackage("\n".join(lines))


def _without(path: Path) -> str:
    """Return how a recipe does without the component at a key, where it can."""
    sections, section = format_sections(), "Sections"
    for place, key in enumerate(path[:-1]):
        option = sections[section].options.get(key)
        annotation = option.annotation if option else None
        if isinstance(annotation, SlotMap) and place == len(path) - 2:
            return f", or leave it out with --set {'.'.join(path)}=false"
        if not isinstance(annotation, SectionRef):
            return ""
        section = annotation.name
    return ""
