"""From a recipe's name to its layers: parents, recipe, profiles, ``--set``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from loopkit.recipe.node import FORMAT, Node, Origin, Problem, RecipeError, nested
from loopkit.recipe.read import LARGEST, read_file, read_text
from loopkit.recipe.shipped import shipped_recipes
from loopkit.registry.catalog import did_you_mean

MAX_PROFILES = 50
BESIDE = ("extends", "profiles")
"""Keys that say how layers are composed and are not part of the composed recipe."""


@dataclass
class Layers:
    """The layers of one recipe, lowest first.

    Args:
        name: The recipe's name: its file's stem.
        path: Its file.
        bodies: Root parent first, the recipe itself last.
        profiles: For each profile, the parts that parents and recipe add to it, root parent first.
    """

    name: str
    path: Path
    bodies: list[Node] = field(default_factory=list)
    profiles: dict[str, list[Node]] = field(default_factory=dict)

    def chosen(self, profiles: Iterable[str]) -> list[Node]:
        """Return the layers of these profiles, in their order.

        Raises:
            RecipeError: If the recipe has no profile of a name.
        """
        layers = []
        for name in profiles:
            if name not in self.profiles:
                names = ", ".join(sorted(self.profiles)) or "none"
                hint = f"{did_you_mean(name, self.profiles)}profiles: {names}"
                origin = Origin(f"--profile {name}")
                raise RecipeError([Problem(origin, (), f"{self.name} has no profile '{name}'", hint)])
            layers += self.profiles[name]
        return layers


def find(name: str, folder: Path | None, origin: Origin) -> tuple[Path, str]:
    """Return the file that a recipe's name or path refers to, and its name in messages.

    Args:
        name: A path, or the bare name of a shipped recipe.
        folder: What a relative path is relative to; None is the current folder.
        origin: Where the name was written.

    Raises:
        RecipeError: If there is neither.
    """
    path = Path(name) if folder is None else folder / name
    shipped = shipped_recipes() if path.suffix not in (".yaml", ".yml") and not path.is_file() else {}
    if name in shipped:  # also where a folder has its name: a plugin's package is often called as its recipe
        return shipped[name], _shown(shipped[name])
    if path.suffix in (".yaml", ".yml") or path.exists():
        return path, name if folder is None else _shown(path)
    hint = f"{did_you_mean(name, shipped)}loopkit list recipe; a file's name ends in .yaml"
    raise RecipeError([Problem(origin, (), f"no recipe is called '{name}'", hint)])


def _shown(path: Path) -> str:
    resolved = path.resolve()
    return str(resolved.relative_to(Path.cwd())) if resolved.is_relative_to(Path.cwd()) else str(resolved)


def load_layers(recipe: str | Path) -> Layers:
    """Read a recipe and its parents.

    Raises:
        RecipeError: If one cannot be read, or they extend each other in a circle.
    """
    file, shown = find(str(recipe), None, Origin(str(recipe)))
    layers = Layers(file.stem, file)
    seen: list[Path] = []
    files: list[tuple[Node, str]] = []
    while True:
        node = read_file(file, shown)
        seen.append(file.resolve())
        files.append((node, shown))
        parent = node.value.get("extends")
        if parent is None or parent.value is None:
            break
        if not isinstance(parent.value, str):
            raise RecipeError([Problem(parent.origin, ("extends",), "must be the path or name of one recipe")])
        file, shown = find(parent.value, parent.origin.folder, parent.origin)
        if file.resolve() in seen:
            raise RecipeError(
                [
                    Problem(
                        parent.origin,
                        ("extends",),
                        f"circular extends: {' -> '.join([*(path.stem for path in seen), file.stem])}",
                    )
                ]
            )
        if not file.exists():
            raise RecipeError([Problem(parent.origin, ("extends",), f"there is no file {shown}", "check the path")])
    version = FORMAT
    for node, shown in reversed(files):
        if (written := node.value.get("loopkit")) is not None:
            if isinstance(written.value, int) and written.value > FORMAT:
                message = (
                    f"recipe format {written.value} is newer than format {FORMAT}, the newest that this loopkit reads"
                )
                raise RecipeError([Problem(written.origin, ("loopkit",), message, "upgrade loopkit")])
            version = 1 if written.value == 1 else FORMAT
        _add(layers, _with_origin(node, format=version) if version != FORMAT else node, shown)
    return layers


def _add(layers: Layers, node: Node, shown: str) -> None:
    """Put a file's body above what is there, and its profiles above theirs."""
    body = {key: item for key, item in node.value.items() if key not in BESIDE}
    layers.bodies.append(Node(body, node.origin))
    profiles = node.value.get("profiles")
    if profiles is None or profiles.value is None:
        return
    if not isinstance(profiles.value, dict):
        raise RecipeError([Problem(profiles.origin, ("profiles",), "must be a map from name to partial recipe")])
    if len(profiles.value) > MAX_PROFILES:
        why = f"{len(profiles.value)} are defined; at most {MAX_PROFILES} are allowed"
        raise RecipeError([Problem(profiles.origin, ("profiles",), why)])
    for name, part in profiles.value.items():
        if not isinstance(part.value, dict):
            raise RecipeError([Problem(part.origin, ("profiles", name), "must be a map of sections")])
        nested = [
            Problem(part.value[k].origin, ("profiles", name, k), f"'{k}' is not allowed in a profile")
            for k in BESIDE
            if k in part.value
        ]
        if nested:
            raise RecipeError(nested)
        layers.profiles.setdefault(name, []).append(_with_origin(part, layer=f"{shown} (profile {name})"))


def _with_origin(node: Node, **fields: Any) -> Node:
    """Return the same node with other fields in the origin of every part."""
    value = node.value
    if isinstance(value, dict):
        value = {key: _with_origin(item, **fields) for key, item in value.items()}
    elif isinstance(value, list):
        value = [_with_origin(item, **fields) for item in value]
    return Node(value, replace(node.origin, **fields))


def override(text: str) -> Node:
    """Return the layer that one ``--set key.path=value`` stands for; the value is read as YAML.

    No value at all is empty text and not null: a shell variable that is not set must not switch anything off.

    Raises:
        RecipeError: If there is no ``=``, a part of the path is empty, or the value is not YAML.
    """
    shown = text if len(text) < 100 else text[:100] + "..."
    origin = Origin(f"--set {shown}", folder=Path.cwd())
    if len(text) > LARGEST:
        raise RecipeError([Problem(origin, (), f"is {len(text):,} characters long; at most {LARGEST:,} are read")])
    key, equals, value = text.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts) or len(parts) > 30:
        raise RecipeError(
            [Problem(origin, (), "is not of the form key.path=value", "for example --set train.lr.peak=1e-3")]
        )
    if parts[0] in (*BESIDE, "sweep"):
        raise RecipeError(
            [Problem(origin, (), f"'{parts[0]}' cannot be set with --set", "use --profile, or write a recipe")]
        )
    return nested(read_text(value, origin) if value.strip() else Node("", origin), parts)


def overrides(texts: Sequence[str]) -> list[Node]:
    """Return the layers of several overrides; report all their problems at once."""
    nodes, problems = [], []
    for text in texts:
        try:
            nodes.append(override(text))
        except RecipeError as error:
            problems += error.problems
    if problems:
        raise RecipeError(problems)
    return nodes
