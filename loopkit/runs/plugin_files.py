"""Files of components that loopkit does not bring: whether they changed since training, and copies of them in the run.

What is compared is the file that defines a component; modules that it imports are not looked at.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from loopkit.recipe import Recipe
from loopkit.registry.schema import Schema
from loopkit.registry.spec import Spec
from loopkit.runs.folder import RunFolder

_DIGEST = re.compile(r"(.*) \(sha256 ([0-9a-f]{12})\)")


def origin(schema: Schema) -> str:
    """Who brings a component: package and version, or a file; with the hash of its file unless it is loopkit's own."""
    if schema.provider.package == "loopkit":
        return str(schema.provider)
    return f"{schema.provider if schema.provider.module else schema.file} (sha256 {_digest(schema.file)})"


def is_file(brought: str) -> bool:
    """Check whether an origin names a local file, not a package."""
    return _split(brought)[0].endswith(".py")


def provider(brought: str) -> str:
    """Return an origin without its hash."""
    return _split(brought)[0]


def changed_components(recorded: Mapping[str, str], specs: Iterable[Spec]) -> list[str]:
    """Return what has changed of the components that a run was trained with, a line for each; empty where nothing has.

    Args:
        recorded: The origin of each by ``kind name``, as it was.
        specs: The components that would be used now.
    """
    origins = {}
    for spec in specs:
        name, now = f"{spec.kind} {spec.name}", origin(spec.schema)
        before = recorded.get(name, now)
        (old, old_hash), (new, new_hash) = _split(before), _split(now)
        own = spec.schema.provider.package == "loopkit" and old.split(" ")[0] == "loopkit"
        # a file that was moved is the same file; a package of before its files were hashed is known by its version
        same = old_hash == new_hash if old_hash and new_hash else old == new
        if not own and not same:
            origins[name] = f"{name}: trained with {before}, now {now}"
    return list(origins.values())


def keep_plugin_files(folder: RunFolder, recipe: Recipe) -> None:
    """Copy every plugin file of a recipe into the run, under its name and hash, so that no version replaces another.

    Args:
        folder: The run.
        recipe: The resolved recipe.
    """
    for file in _plugin_files(recipe):
        copy = folder.plugins / f"{file.stem}-{_digest(file)}.py"
        if not copy.exists():
            copy.parent.mkdir(exist_ok=True)
            copy.write_bytes(file.read_bytes())


def copy_of(folder: RunFolder, file: Path, origins: Iterable[str]) -> Path | None:
    """Return the run's copy of a plugin file, in the version that a checkpoint was trained with.

    Args:
        folder: The run.
        file: The plugin file, which may be missing.
        origins: The recorded origins of the checkpoint's components.
    """
    digests = _recorded_digests(file, origins)
    copies = sorted(folder.plugins.glob(f"{file.stem}-*.py"))
    trained = [copy for copy in copies if copy.stem.rpartition("-")[2] in digests]
    candidates = trained if digests else copies
    return candidates[0] if len(candidates) == 1 else None


def is_version_of(file: Path, recorded: Path, origins: Iterable[str]) -> bool:
    """Whether a file has the name of a recorded plugin file, or the content that a checkpoint was trained with."""
    return file.exists() and (file.name == recorded.name or _digest(file) in _recorded_digests(recorded, origins))


def _recorded_digests(file: Path, origins: Iterable[str]) -> set[str]:
    return {digest for name, digest in map(_split, origins) if Path(name).name == file.name}


def _plugin_files(recipe: Recipe) -> Iterator[Path]:
    """Yield the files that the recipe names, and those of its components, loopkit's own left out."""
    schemas = [spec.schema for spec in recipe.specs.values()]
    used = [schema.file.resolve() for schema in schemas if schema.provider.package != "loopkit"]
    named = [Path(file).resolve() for file in recipe.plugins or ()]
    yield from dict.fromkeys([*named, *used])


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12]


def _split(brought: str) -> tuple[str, str]:
    """Return an origin as who brings it, and the hash of the file; the hash is empty where none was noted."""
    match = _DIGEST.fullmatch(brought)
    return (match[1], match[2]) if match else (brought, "")
