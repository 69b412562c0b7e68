"""``loopkit train``: train a recipe."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from loopkit.cli.completion import complete_recipe
from loopkit.cli.options import exit_code_help, recipe_options, runs_option
from loopkit.cli.ranks import nproc_option, start_ranks

if TYPE_CHECKING:
    from loopkit.runs import RunFolder


@exit_code_help
@click.command("train")
@click.argument("recipe", shell_complete=complete_recipe)
@recipe_options
@click.option("--name", help="Name of the run.  [default: RECIPE or RECIPE-PROFILE]")
@click.option("--resume", is_flag=True, help="Resume from the newest checkpoint of the run.")
@click.option(
    "--accept-changed-plugins", is_flag=True, help="Resume even if a plugin file has changed since the run started."
)
@runs_option
@nproc_option
@click.option("--verbose", is_flag=True, help="Also show the messages of DeepSpeed.")
def command(
    recipe: str,
    profiles: tuple[str, ...],
    overrides: tuple[str, ...],
    plugins: tuple[Path, ...],
    no_plugins: bool,
    name: str | None,
    resume: bool,
    accept_changed_plugins: bool,
    runs: Path,
    nproc: int | None,
    verbose: bool,
) -> None:
    """Train RECIPE, a path or the name of a shipped recipe.

    The run is written to runs/NAME. Ctrl-C saves a checkpoint and shows the command that resumes the run.
    """
    from loopkit.recipe import load_recipe
    from loopkit.runs import NoRun, RunFolder, check_name, run_name
    from loopkit.runs.resolved import run_named_before

    resolved = load_recipe(recipe, profiles, overrides, plugins=plugins, installed=not no_plugins)
    chosen_name = (
        check_name(name) if name is not None else run_name(resolved.name, resolved.hash if overrides else None)
    )
    folder = RunFolder(runs / chosen_name)
    if resume and name is None and overrides and not folder.path.is_dir():
        folder = run_named_before(runs, resolved) or folder
    if not resume:
        folder.refuse_existing()  # before torch is imported
    elif not folder.path.is_dir():
        names = ", ".join(run.name for run in RunFolder.all(runs)) or "none"
        raise NoRun(f"there is no run {folder.path} to resume; choose one with --name; runs in {runs}: {names}")

    start_ranks(nproc)

    from loopkit.training.distributed.rank_errors import report_rank_errors
    from loopkit.training.errors import Ended, Interrupted
    from loopkit.training.train import train

    first = os.environ.get("RANK", "0") == "0"
    try:
        with report_rank_errors():
            trained = train(
                resolved,
                folder=folder,
                resume=resume,
                accept_changed_plugins=accept_changed_plugins,
                verbose=verbose,
            )
    except Ended as stop:
        if first or not isinstance(stop, Interrupted):
            click.echo(f"\n{'' if isinstance(stop, Interrupted) else 'error: '}{stop}", err=True)
        if first and stop.resumable:
            click.echo(f"resume with: {_resume_command(sys.argv)}", err=True)
        sys.exit(stop.exit_code)
    if first:
        _show_result(trained.folder)


def _show_result(folder: RunFolder) -> None:
    """Show the last evaluation, write the report, and list the files."""
    from loopkit.report import averaged_report, console, depth_report, read_record, write_report

    record = read_record(folder)
    if (result := record.latest()) is not None:  # before the report, which may fail
        console().print(depth_report(result))
    if (pair := record.averaged()) is not None:
        console().print(averaged_report(*pair))
    write_report(folder)
    click.echo(f"\nrun: {folder.path}   report: {folder.report}")
    click.echo(f"evaluate it at other depths: loopkit eval {folder.path} --depths 1-8")


def _resume_command(arguments: list[str]) -> str:
    """Return the command line that resumes an interrupted run."""
    import shlex

    options = [word for word in arguments[1:] if word != "--resume"]
    return shlex.join(["loopkit", *options, "--resume"])
