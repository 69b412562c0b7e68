"""Recipes of loopkit and of installed plugins, by name."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

from loopkit.registry.module_files import module_folder

GROUP = "loopkit.recipes"
PACKAGE = Path(__file__).resolve().parent.parent


def own_folder() -> Path:
    """Return the folder of loopkit's own recipes: in the installed package, or next to it in a checkout."""
    installed = PACKAGE / "_recipes"
    return installed if installed.is_dir() else PACKAGE.parent / "recipes"


def folders(plugins: bool = True) -> list[tuple[str, Path]]:
    """Return each provider of recipes and the folder of its recipes."""
    result = [("loopkit", own_folder())]
    for point in entry_points(group=GROUP) if plugins else ():
        if (folder := module_folder(point.value)) is not None:
            result.append((point.dist.name if point.dist else point.name, folder))
    return result


def shipped_recipes(plugins: bool = True) -> dict[str, Path]:
    """Return name to file of every shipped recipe; loopkit's take precedence over a plugin's of the same name."""
    files: dict[str, Path] = {}
    for _, folder in folders(plugins):
        for file in sorted(folder.glob("*.yaml")):
            files.setdefault(file.stem, file)
    return files
