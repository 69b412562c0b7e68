"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from loopkit.exit_codes import ExitCode

Function = Callable[..., Any]


def recipe_options(command: Function) -> Function:
    """``--profile``, ``--set``, ``--plugins`` and ``--no-plugins``: how a recipe is composed."""
    decorators = (
        click.option("--profile", "-p", "profiles", multiple=True, metavar="NAME", help="Apply a profile; may repeat."),
        click.option(
            "--set",
            "-s",
            "overrides",
            multiple=True,
            metavar="KEY=VALUE",
            help="Set one value, such as train.lr.peak=1e-3.",
        ),
        plugin_options,
    )
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def plugin_options(command: Function) -> Function:
    """``--plugins`` and ``--no-plugins``: which components exist."""
    command = click.option("--no-plugins", is_flag=True, help="Leave installed plugins out.")(command)
    return plugin_files_option(command)


plugin_files_option = click.option(
    "--plugins",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A Python file with components; may repeat.",
)


def exit_code_help(command: click.Command) -> click.Command:
    """Add the table of exit codes to a command's help."""
    import textwrap

    lines = [
        textwrap.fill(code.meaning, 78, initial_indent=f"  {code.value:<5}", subsequent_indent=" " * 7)
        for code in ExitCode
    ]
    command.help = "\n".join([f"{command.help}\n\n\b", "Exit codes:", *lines])
    return command


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
