"""``loopkit doctor``: what this installation has, and what is broken in it."""

from __future__ import annotations

import hashlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loopkit.cli.options import json_option, plugin_options

if TYPE_CHECKING:
    from loopkit.registry.catalog import Catalog, Offer

PACKAGES = (
    "loopkit",
    "torch",
    "deepspeed",
    "datasets",
    "tokenizers",
    "safetensors",
    "pydantic",
    "numpy",
    "transformers",
)


@click.command("doctor")
@plugin_options
@json_option
def command(plugins: tuple[Path, ...], no_plugins: bool, as_json: bool) -> None:
    """Show versions, devices, folders, and every plugin with its state."""
    import json

    versions, machine, optional = {package: _version(package) for package in PACKAGES}, _machine(), _optional()
    rows = _plugins(plugins, installed=not no_plugins)
    if as_json:
        found = {"versions": versions, "machine": machine, "optional": optional, "plugins": rows}
        click.echo(json.dumps(found, indent=2))
        return
    for title, facts in (("versions", versions), ("machine", machine), ("optional packages", optional)):
        click.echo(title)
        for name, value in facts.items():
            click.echo(f"  {name:14} {value}")
    click.echo("plugins")
    for row in rows:
        click.echo(f"  {row['component']:28} {row['from']:24} {row['sha256']:14} {row['state']}")
    if not rows:
        click.echo("  none installed")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _optional() -> dict[str, str]:
    """The packages that loopkit's own components need and that it does not install, each with its state."""
    from loopkit.registry.catalog import builtin_offers
    from loopkit.registry.packages import is_installed, remedy

    found: dict[str, str] = {}
    for offer in builtin_offers():
        for name, wanted in offer.schema.traits.get("packages", {}).items() if offer.schema else ():
            state = "installed" if is_installed(name) else f"not installed: {remedy({name: wanted})}"
            found[name] = f"{state}, for {offer.kind}/{offer.name}"
    return found


def _machine() -> dict[str, Any]:
    import os
    import platform
    import sys

    import torch

    from loopkit.data import cache_folder

    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {
        "python": f"{platform.python_version()} at {sys.executable}",
        "system": platform.platform(),
        "cpu cores": os.cpu_count(),
        "gpu": ", ".join(gpus) or "none",
        "cache": str(cache_folder()),
    }


def _plugins(files: tuple[Path, ...], installed: bool) -> list[dict[str, str]]:
    """Every component and recipe folder that is not loopkit's own, with the state it is in."""
    import warnings

    from loopkit.registry.catalog import SourceProblem, catalog

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they say stands in the table
        known = catalog(installed)
    broken = []
    for file in files:
        try:
            known = known.with_files([file])
        except SourceProblem as error:
            broken.append(_row("file", str(file), file, str(error)))
    rows = [
        _row(f"{offer.kind}/{offer.name}", str(offer.provider), offer.file, _state(offer, known))
        for offer in known.offers
        if not offer.builtin
    ]
    return [*rows, *broken, *_recipe_folders(installed)]


def _row(component: str, origin: str, file: Path | None, state: str) -> dict[str, str]:
    digest = hashlib.sha256(file.read_bytes()).hexdigest()[:12] if file and file.is_file() else "-"
    return {"component": component, "from": origin, "sha256": digest, "file": str(file or "-"), "state": state}


def _state(offer: Offer, known: Catalog) -> str:
    """Readable, importable, and alone in its name, or what is in the way."""
    if offer.schema is None:
        return offer.problem
    try:
        offer.schema.load()
    except (Exception, SystemExit) as error:
        notes = " ".join(getattr(error, "__notes__", ()))
        return f"cannot be imported: {type(error).__name__}: {error} {notes}".strip()
    others = [other for other in known.of(offer.kind) if other.name == offer.name and other is not offer]
    name = f"{offer.provider.package}:{offer.name}"
    if any(other.builtin for other in others):
        return f"ready as {name}, because loopkit has a {offer.kind} of this name"
    if others:
        return f"ready as {name}, because {', '.join(str(other.provider) for other in others)} has one of this name"
    return "ready"


def _recipe_folders(installed: bool) -> list[dict[str, str]]:
    from loopkit.recipe.shipped import folders

    rows = []
    for package, folder in folders(installed):
        if package != "loopkit":
            count = len(list(folder.glob("*.yaml")))
            state = "ready" if count else f"there is no recipe in {folder}"
            rows.append(
                _row(f"{count} recipe{'' if count == 1 else 's'}", package, None, state) | {"file": str(folder)}
            )
    return rows
