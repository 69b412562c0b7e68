"""``loopkit doctor``: versions, devices and plugins, with their problems."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loopkit.cli.options import json_option, plugin_options
from loopkit.plural import plural

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
)


@dataclass(frozen=True)
class Tool:
    """An optional package that no component imports.

    Args:
        distribution: Its name on PyPI.
        extra: The extra of loopkit that installs it.
        fits: Versions that loopkit works with, as ``pyproject.toml`` states them; empty: any.
        use: What it is for.
    """

    distribution: str
    extra: str
    fits: str
    use: str


TOOLS = {
    "transformers": Tool("transformers", "hf", ">=4.55", "loading exported folders"),
    "gguf": Tool("gguf", "gguf", ">=0.17", "export --to gguf"),
    "xllamacpp": Tool("xllamacpp", "llama-cpp", "", "llama.cpp in Python"),
    "lm_eval": Tool("lm_eval", "lm-eval", ">=0.4.13", "loopkit lm-eval"),
}
"""Optional packages by module."""


@click.command("doctor")
@plugin_options
@json_option
def command(plugins: tuple[Path, ...], no_plugins: bool, as_json: bool) -> None:
    """Show versions, devices, folders, and every plugin with its state."""
    import json

    versions, machine, optional = {package: _version(package) for package in PACKAGES}, _machine(), _optional()
    rows = _plugins(plugins, installed=not no_plugins)
    if as_json:
        record = {"versions": versions, "machine": machine, "optional": optional, "plugins": rows}
        click.echo(json.dumps(record, indent=2))
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
    """The optional packages, each with its state."""
    from loopkit.registry.catalog import builtin_offers
    from loopkit.registry.packages import is_installed, remedy

    states: dict[str, str] = {}
    for offer in builtin_offers():
        for name, requirement in offer.schema.traits.get("packages", {}).items() if offer.schema else ():
            state = "installed" if is_installed(name) else f"not installed: {remedy({name: requirement})}"
            states[name] = f"{state}, for {offer.kind}/{offer.name}"
    for name, tool in TOOLS.items():
        install = remedy({name: f"loopkit[{tool.extra}]"})
        state = _tool_state(tool, install) if is_installed(name) else f"not installed: {install}"
        states[name] = f"{state}, for {tool.use}"
    return states


def _tool_state(tool: Tool, install: str) -> str:
    """Describe the installed version of a tool, and whether it fits."""
    from packaging.specifiers import SpecifierSet

    installed = _version(tool.distribution)
    if SpecifierSet(tool.fits).contains(installed, prereleases=True):
        return f"{installed}, fits"
    return f"{installed} does not fit, because loopkit needs {tool.fits}: {install.replace('install', 'install -U', 1)}"


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
    """Every component and recipe folder of a plugin, with its state."""
    import warnings

    from loopkit.registry.catalog import catalog
    from loopkit.registry.source import SourceProblem

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the table shows the same problems
        components = catalog(installed)
    broken = []
    for file in files:
        try:
            components = components.with_files([file])
        except SourceProblem as error:
            broken.append(_row("file", str(file), file, str(error)))
    rows = [
        _row(f"{offer.kind}/{offer.name}", str(offer.provider), offer.file, _state(offer, components))
        for offer in components.offers
        if not offer.builtin
    ]
    return [*rows, *broken, *_recipe_folders(installed)]


def _row(component: str, origin: str, file: Path | None, state: str) -> dict[str, str]:
    digest = hashlib.sha256(file.read_bytes()).hexdigest()[:12] if file and file.is_file() else "-"
    return {"component": component, "from": origin, "sha256": digest, "file": str(file or "-"), "state": state}


def _state(offer: Offer, components: Catalog) -> str:
    """Describe whether a component can be used, and under which name."""
    if offer.schema is None:
        return offer.problem
    try:
        offer.schema.load()
    except (Exception, SystemExit) as error:
        notes = " ".join(getattr(error, "__notes__", ()))
        return f"cannot be imported: {type(error).__name__}: {error} {notes}".strip()
    namesakes = [other for other in components.of(offer.kind) if other.name == offer.name and other is not offer]
    name = f"{offer.provider.package}:{offer.name}"
    if any(other.builtin for other in namesakes):
        return f"ready as {name}, because loopkit has a {offer.kind} of the same name"
    if namesakes:
        return (
            f"ready as {name}, because {', '.join(str(other.provider) for other in namesakes)} has one of the same name"
        )
    return "ready"


def _recipe_folders(installed: bool) -> list[dict[str, str]]:
    from loopkit.recipe.shipped import folders

    rows = []
    for package, folder in folders(installed):
        if package != "loopkit":
            num_recipes = len(list(folder.glob("*.yaml")))
            state = "ready" if num_recipes else f"no recipes in {folder}"
            rows.append(_row(plural(num_recipes, "recipe"), package, None, state) | {"file": str(folder)})
    return rows
