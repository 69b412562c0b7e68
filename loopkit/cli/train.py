"""``loopkit train``: a recipe becomes a trained run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from loopkit.cli.completion import recipe_words
from loopkit.cli.options import exit_code_help, recipe_options
from loopkit.cli.ranks import nproc_option, start_ranks


@exit_code_help
@click.command("train")
@click.argument("recipe", shell_complete=recipe_words)
@recipe_options
@click.option("--name", help="Name of the run; RECIPE, or RECIPE-PROFILE, if not given.")
@click.option("--resume", is_flag=True, help="Go on from the newest checkpoint of the run.")
@click.option(
    "--accept-changed-plugins", is_flag=True, help="Resume although a plugin file changed since the run was made."
)
@click.option("--runs", type=click.Path(path_type=Path), default=Path("runs"), help="Folder of the runs.")
@nproc_option
@click.option("--verbose", is_flag=True, help="Let DeepSpeed speak too.")
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

    The run goes to runs/NAME. Ctrl-C saves a checkpoint and says how to go on.
    """
    from loopkit.recipe import load_recipe
    from loopkit.runs import NoRun, RunFolder, check_name, run_name
    from loopkit.runs.resolved import run_named_before

    resolved = load_recipe(recipe, profiles, overrides, plugins=plugins, installed=not no_plugins)
    given = check_name(name) if name is not None else run_name(resolved.name, resolved.hash if overrides else None)
    folder = RunFolder(runs / given)
    if resume and name is None and overrides and not folder.path.is_dir():
        folder = run_named_before(runs, resolved) or folder
    if not resume:
        folder.refuse_existing()  # before torch is imported
    elif not folder.path.is_dir():
        known = ", ".join(other.name for other in RunFolder.all(runs)) or "none"
        raise NoRun(f"there is no run {folder.path} to go on with; say which with --name; runs in {runs}: {known}")

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
            click.echo(f"go on with: {_again(sys.argv)}", err=True)
        sys.exit(stop.exit_code)
    if first:
        _finish(trained.folder)


def _finish(folder: object) -> None:
    """Say what the run measures, and where everything lies."""
    from loopkit.report import console, depth_report, read_record, write_report
    from loopkit.runs import RunFolder

    assert isinstance(folder, RunFolder)
    record = read_record(folder)
    if record.evaluations:  # before the report, which may fail
        console().print(depth_report(record.evaluations[-1]))
    write_report(folder)
    click.echo(f"\nrun: {folder.path}   report: {folder.report}")
    click.echo(f"measure it at other depths: loopkit eval {folder.path} --depths 1-8")


def _again(words: list[str]) -> str:
    import shlex

    kept = [word for word in words[1:] if word != "--resume"]
    return shlex.join(["loopkit", *kept, "--resume"])
