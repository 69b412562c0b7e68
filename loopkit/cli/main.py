"""``loopkit``: the group of commands, and what an error looks like."""

from __future__ import annotations

import importlib
import os
import select
import sys
import warnings
from keyword import iskeyword
from pathlib import Path
from typing import Any

import click

from loopkit.cli.groups import Suggesting
from loopkit.exit_codes import ExitCode

COMMANDS: dict[str, str] = {
    "train": "Train a recipe.",
    "eval": "Measure a run at every depth.",
    "generate": "Go on from a prompt.",
    "validate": "Check recipes without running anything.",
    "plan": "Say what a recipe costs before it runs.",
    "bench": "Time how fast a recipe trains here.",
    "audit": "Tell whether the state's scale is left to itself.",
    "sweep": "Train a recipe with other values, one run for each.",
    "reproduce": "Run, measure and judge the experiments of a paper.",
    "import": "Make a run of a published checkpoint folder.",
    "export": "Write a run's model in a published form.",
    "report": "Write up a run, or put several side by side.",
    "list": "List components and recipes.",
    "show": "Show a recipe or a component.",
    "migrate": "Rewrite recipes of an older format in the present one.",
    "schema": "Write the JSON schema that editors use.",
    "new": "Begin a plugin or a recipe.",
    "doctor": "Show versions, device and plugins.",
}
"""Every command and its one line of help; the rest is in the command's own file."""


class Commands(Suggesting):
    """Loads a command's file when it is asked for, so that ``--help`` stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"loopkit.cli.{name}_" if iskeyword(name) else f"loopkit.cli.{name}")
        command: click.Command = module.command
        command.short_help = COMMANDS[name]
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command: user errors are reported without a traceback, other exceptions with it; one rank reports."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            click.echo("\ninterrupted", err=True)
            sys.exit(ExitCode.INTERRUPTED)
        except Exception as error:
            if isinstance(error, BrokenPipeError) and _is_reader_gone():
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains as it flushes
                sys.exit(ExitCode.PIPE_CLOSED)
            if ctx.params.get("traceback"):
                raise
            from loopkit.error_report import exit_code_of, format_error
            from loopkit.training.distributed.launch import should_report

            if should_report():
                click.echo(format_error(error), err=True)
            sys.exit(exit_code_of(error))


def _is_reader_gone() -> bool:
    """Whether nobody can read standard output any more, as behind ``head``."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), select.POLLOUT)
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
    except (OSError, ValueError):  # it is closed, or not a file
        return False


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.version_option(package_name="loopkit", prog_name="loopkit")
@click.option("--traceback", is_flag=True, help="Show the traceback of a user error too.")
def main(traceback: bool) -> None:
    """Recipes, components and measurements for looped language models."""
    warnings.showwarning = _warn
    _SAID.clear()


_SAID: set[str] = set()
"""Warnings that this command has said; composing a recipe once per profile finds each of them again."""


def _warn(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """Say a warning of ours in one line; other libraries' warnings are for their developers."""
    if issubclass(category, UserWarning) and str(where[0] if where else "").startswith(str(Path(__file__).parents[1])):
        if str(message) not in _SAID:
            click.echo(f"warning: {message}", err=True)
        _SAID.add(str(message))
