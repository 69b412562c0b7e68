"""``loopkit``: the group of commands, and what an error looks like."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from keyword import iskeyword
from pathlib import Path
from typing import Any

import click

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
    "schema": "Write the JSON schema that editors use.",
    "new": "Begin a plugin or a recipe.",
    "doctor": "Show versions, device and plugins.",
}
"""Every command and its one line of help; the rest is in the command's own file."""


class Commands(click.Group):
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
        """Run a command; what the user can mend is said in words, with exit code 2 and no traceback."""
        try:
            return super().invoke(ctx)
        except (ValueError, OSError, LookupError) as error:
            if ctx.params.get("traceback"):
                raise
            if "WORLD_SIZE" not in os.environ or os.environ.get("LOCAL_RANK", "0") == "0":
                _say(error)  # of several ranks one speaks for its machine
            sys.exit(2)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)
        except Exception as error:
            if ctx.params.get("traceback") or not _is_of_a_plugin(error):
                raise
            _say(error)
            click.echo("  loopkit --traceback ... shows where", err=True)
            sys.exit(2)


def _is_of_a_plugin(error: Exception) -> bool:
    """Whether a component's module could not be imported."""
    from loopkit.registry.loading import IMPORTING

    return any(note.startswith(IMPORTING) for note in getattr(error, "__notes__", ()))


def _say(error: Exception) -> None:
    from loopkit.recipe import RecipeError

    if isinstance(error, RecipeError):
        click.echo(str(error), err=True)
        count = len(error.problems)
        click.echo(f"\n{count} problem{'s' if count != 1 else ''}", err=True)
        return
    message = error.args[0] if isinstance(error, KeyError) and error.args else str(error)
    name = "" if isinstance(error, ValueError | OSError | LookupError) else f"{type(error).__name__}: "
    click.echo(f"error: {name}{message or type(error).__name__}", err=True)
    for note in getattr(error, "__notes__", ()):
        click.echo(f"  {note}", err=True)


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.version_option(package_name="loopkit", prog_name="loopkit")
@click.option("--traceback", is_flag=True, help="Show the traceback of an error.")
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
