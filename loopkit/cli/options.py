"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from loopkit.exit_codes import ExitCode

Function = Callable[..., Any]


def recipe_options(command: Function) -> Function:
    """Add ``--profile``, ``--set``, ``--plugins`` and ``--no-plugins``, which change a recipe."""
    decorators = (
        click.option("--profile", "-p", "profiles", multiple=True, metavar="NAME", help="Apply a profile; may repeat."),
        click.option(
            "--set",
            "-s",
            "overrides",
            multiple=True,
            metavar="KEY=VALUE",
            help="Set a value, such as train.lr.peak=1e-3; may repeat.",
        ),
        plugin_options,
    )
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def plugin_options(command: Function) -> Function:
    """Add ``--plugins`` and ``--no-plugins``, which select the available components."""
    command = click.option("--no-plugins", is_flag=True, help="Ignore installed plugins.")(command)
    return plugin_files_option(command)


plugin_files_option = click.option(
    "--plugins",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Python file with components; may repeat.",
)


def exit_code_help(command: click.Command) -> click.Command:
    """Add the table of exit codes to a command's help."""
    import inspect
    import textwrap

    lines = [
        textwrap.fill(code.meaning, 78, initial_indent=f"  {code.value:<5}", subsequent_indent=" " * 7)
        for code in ExitCode
    ]
    command.help = "\n".join([f"{inspect.cleandoc(command.help or '')}\n\n\b", "Exit codes:", *lines])
    return command


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")

runs_option = click.option(
    "--runs", type=click.Path(path_type=Path), default=Path("runs"), show_default=True, help="Folder of the runs."
)
step_option = click.option(
    "--step", type=click.IntRange(min=0), help="Optimizer step of the checkpoint.  [default: the newest]"
)
weights_option = click.option(
    "--weights",
    type=click.Choice(["trained", "ema"]),
    default="trained",
    show_default=True,
    help="Weights of the checkpoint; ema is their average, if the run has train.ema.",
)
dtype_option = click.option(
    "--dtype", type=click.Choice(["fp32", "bf16_autocast"]), help="Numeric precision.  [default: that of the recipe]"
)
device_option = click.option(
    "--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True, help="Device to use."
)
vocabulary_option = click.option(
    "--vocabulary", type=click.IntRange(min=1), help="Vocabulary size, if the tokenizer learns it from the data."
)


def choose_device(name: str) -> str:
    """Turn ``auto`` into the device of this machine."""
    import torch

    return ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name


def show_checkpoint_warnings(warnings: Iterable[str], checkpoint: str) -> None:
    """Show why newer checkpoints are not used."""
    for warning in warnings:
        click.echo(f"warning: {warning}; using {checkpoint}", err=True)
