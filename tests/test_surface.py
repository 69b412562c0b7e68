"""The surface that users and plugins rely on, frozen: changing it is a visible diff of ``surface.json``.

Write it anew with ``python -m tests.test_surface``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from loopkit.cli.main import COMMANDS, main
from loopkit.recipe.authoring.describe import describe
from loopkit.recipe.recipe import format_sections
from loopkit.registry import KINDS
from loopkit.registry.catalog import builtin_offers

SNAPSHOT = Path(__file__).with_name("surface.json")


def surface() -> dict[str, Any]:
    """Commands with their options, sections, kinds with their wiring, components with their options."""
    context = click.Context(main)
    commands = {}
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None
        commands[name] = sorted(option for param in command.params for option in (*param.opts, *param.secondary_opts))
    components = {
        f"{offer.kind}/{offer.name}": {name: _option(option) for name, option in offer.schema.options.items()}
        for offer in builtin_offers()
        if offer.schema
    }
    return {
        "commands": commands,
        "kinds": {kind.name: list(kind.wiring) for kind in KINDS.values()},
        "sections": {
            name: {o.name: _option(o) for o in s.options.values()} for name, s in sorted(format_sections().items())
        },
        "components": dict(sorted(components.items())),
    }


def _option(option: Any) -> str:
    return f"{describe(option.annotation)} = {'required' if option.required else json.dumps(option.default)}"


def test_the_surface_is_the_one_on_record() -> None:
    recorded = json.loads(SNAPSHOT.read_text())
    assert surface() == recorded, "the surface changed: python -m tests.test_surface, and a line in CHANGELOG.md"


if __name__ == "__main__":
    SNAPSHOT.write_text(json.dumps(surface(), indent=1, sort_keys=False) + "\n")
