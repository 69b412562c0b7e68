"""``loopkit``: the group of commands, and how it reports errors and warnings."""

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

from loopkit.cli.groups import SuggestingGroup
from loopkit.exit_codes import ExitCode

COMMANDS: dict[str, str] = {
    "train": "Train a recipe.",
    "eval": "Evaluate a run at every depth.",
    "generate": "Generate text from a prompt.",
    "validate": "Check recipes without running them.",
    "plan": "Estimate parameters, FLOPs, memory and time.",
    "bench": "Measure training throughput on this machine.",
    "audit": "Check whether the state norm is controlled and the recurrence stable.",
    "sweep": "Train a recipe once for each combination of values.",
    "reproduce": "Run the experiments of a paper and check its claims.",
    "import": "Import a Hugging Face checkpoint folder as a run.",
    "lm-eval": "Evaluate a run with lm-eval.",
    "export": "Export a run as a Hugging Face folder or a GGUF file.",
    "report": "Write the report of a run, or compare several runs.",
    "list": "List components and recipes.",
    "show": "Show a recipe, a component, or the contract of a kind.",
    "migrate": "Rewrite recipes of an older format in the current format.",
    "schema": "Write the JSON schema of recipes, for editors.",
    "new": "Create a plugin or a recipe.",
    "doctor": "Show versions, device and plugins.",
}
"""Every command and its one line of help; its module holds the rest."""


def module_of(name: str) -> str:
    """Return the name of a command's module, which is an identifier."""
    return f"{name}_" if iskeyword(name) else name.replace("-", "_")


class Commands(SuggestingGroup):
    """Imports the module of a command only when the command is used, so that ``--help`` stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"loopkit.cli.{module_of(name)}")
        command: click.Command = module.command
        command.short_help = COMMANDS[name]
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. User errors are reported without a traceback, other exceptions with it, by one rank only."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            click.echo("\ninterrupted", err=True)
            sys.exit(ExitCode.INTERRUPTED)
        except Exception as error:
            if isinstance(error, BrokenPipeError) and _is_reader_gone():
                os.dup2(
                    os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
                )  # otherwise Python reports an error when it flushes
                sys.exit(ExitCode.PIPE_CLOSED)
            if ctx.params.get("traceback"):
                raise
            from loopkit.error_report import exit_code_of, format_error
            from loopkit.training.distributed.launch import should_report

            if should_report():
                click.echo(format_error(error), err=True)
            sys.exit(exit_code_of(error))


def _is_reader_gone() -> bool:
    """Whether the reader of standard output has closed it, as ``head`` does."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), select.POLLOUT)
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
    except (OSError, ValueError):  # closed, or not a file
        return False


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.version_option(package_name="loopkit", prog_name="loopkit")
@click.option("--traceback", is_flag=True, help="Also show the traceback of user errors.")
def main(traceback: bool) -> None:
    """Recipes, components and measurements for looped language models."""
    warnings.showwarning = _warn
    _SHOWN.clear()


_SHOWN: set[str] = set()
"""Warnings that this command has shown; a recipe that is composed once per profile repeats them."""


def _warn(message: Warning | str, category: type[Warning], *location: Any, **options: Any) -> None:
    """Show a warning of loopkit in one line; warnings of other libraries are dropped."""
    if issubclass(category, UserWarning) and str(location[0] if location else "").startswith(
        str(Path(__file__).parents[1])
    ):
        if str(message) not in _SHOWN:
            click.echo(f"warning: {message}", err=True)
        _SHOWN.add(str(message))
