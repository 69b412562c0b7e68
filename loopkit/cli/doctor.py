"""``loopkit doctor``: what this installation has, and what is broken in it."""

from __future__ import annotations

import hashlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

from loopkit.cli.options import json_option, plugin_options

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

    versions, machine = {package: _version(package) for package in PACKAGES}, _machine()
    rows = _plugins(plugins, installed=not no_plugins)
    if as_json:
        click.echo(json.dumps({"versions": versions, "machine": machine, "plugins": rows}, indent=2))
        return
    for title, facts in (("versions", versions), ("machine", machine)):
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
    from loopkit.registry.catalog import catalog

    rows = []
    for offer in catalog(installed).with_files(files).offers:
        if offer.builtin:
            continue
        digest = hashlib.sha256(offer.file.read_bytes()).hexdigest()[:12] if offer.file else "-"
        state = offer.problem or "ready"
        rows.append(
            {"component": f"{offer.kind}/{offer.name}", "from": str(offer.provider), "sha256": digest, "state": state}
        )
    return rows
