"""``loopkit eval``: evaluate a run at every depth."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loopkit.cli.completion import complete_run
from loopkit.cli.options import (
    choose_device,
    device_option,
    dtype_option,
    json_option,
    plugin_files_option,
    runs_option,
    show_checkpoint_warnings,
    step_option,
    weights_option,
)
from loopkit.cli.ranks import nproc_option, start_ranks
from loopkit.plural import plural

if TYPE_CHECKING:
    import torch
    from rich.console import RenderableType

    from loopkit.evaluation.shards import EvaluationShard
    from loopkit.evaluation.trained_run import TrainedRun
    from loopkit.runs.checkpoint import Weights

REMEDY = "No result was written. Completions are saved; run the same command to resume"
"""Consequence of a lost rank, for its error message."""


@click.command("eval")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option(
    "--depths",
    help="Numbers of loops: 1-8, 1,2,4 or 8.  [default: the recipe's, else 1 to N and 2N, N the deepest trained]",
)
@click.option(
    "--split",
    type=click.Choice(["validation", "test", "train"]),
    help="Split of the data.  [default: that of the recipe]",
)
@click.option("--max-tokens", type=click.IntRange(min=1), help="Score about this many tokens.")
@click.option("--batch", type=click.IntRange(min=1), help="Windows per forward pass.  [default: that of the recipe]")
@step_option
@weights_option
@dtype_option
@device_option
@click.option(
    "--read-as",
    type=click.Choice(["depth", "trained"]),
    default="depth",
    show_default=True,
    help="Loop that counts as the last when loop k is read: k, or the deepest trained one.",
)
@click.option(
    "--time",
    "timed",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Also time each depth separately on N batches.",
)
@click.option("--exit", "exits", multiple=True, metavar="NAME", help="Benchmark this early-exit rule; may repeat.")
@click.option(
    "--task",
    "tasks",
    multiple=True,
    metavar="NAME[=TYPE]",
    help="Run this task instead of those of the recipe; may repeat.",
)
@click.option(
    "--set",
    "-s",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a value under evaluate or data; may repeat.",
)
@plugin_files_option
@runs_option
@click.option("--no-write", is_flag=True, help="Only print the result; do not write to the run.")
@nproc_option
@json_option
def command(
    run: str | None,
    depths: str | None,
    split: str | None,
    max_tokens: int | None,
    batch: int | None,
    step: int | None,
    weights: Weights,
    dtype: str | None,
    device: str,
    read_as: str,
    timed: int,
    exits: tuple[str, ...],
    tasks: tuple[str, ...],
    overrides: tuple[str, ...],
    plugins: tuple[Path, ...],
    runs: Path,
    no_write: bool,
    nproc: int | None,
    as_json: bool,
) -> None:
    """Evaluate RUN at every depth from one pass. RUN is a folder or a name under runs/; the default is the newest.

    The result goes to the eval/ folder of the run, and its report and plots are updated. With --nproc, or under
    torchrun, the ranks share batches and prompts; the result equals that of one process.
    """
    from loopkit.evaluation.overrides import check_overrides
    from loopkit.recipe.depths import parse_depths
    from loopkit.runs import RunFolder
    from loopkit.runs.atomic import check_writable

    chosen_depths = None if depths is None else parse_depths(depths)  # before torch is imported
    evaluation = {"split": split, "max_tokens": max_tokens, "batch": batch}
    settings = [f"evaluate.{name}={value}" for name, value in evaluation.items() if value is not None]
    check_overrides(overrides)
    folder = RunFolder.open(run, runs)
    if not no_write:  # before any work
        for target in (folder.path, folder.evaluations, folder.path / "plots"):
            check_writable(
                target, "make it writable, evaluate a copy of the run, or only print the result with --no-write"
            )
    start_ranks(nproc, REMEDY)

    from loopkit.evaluation.evaluate_run import benchmark_run, evaluate_run
    from loopkit.evaluation.shards import ALONE
    from loopkit.evaluation.trained_run import open_run
    from loopkit.report import depth_report, write_report
    from loopkit.report.plots.frontier import plot_frontier
    from loopkit.report.tables.early_exit import exit_report
    from loopkit.training.distributed.rank_errors import report_rank_errors

    with report_rank_errors(REMEDY):
        place, shard = _join(device)
        changes = (*overrides, *settings)
        opened = open_run(
            folder.path,
            step=step,
            weights=weights,
            overrides=changes,
            tasks=tasks,
            plugins=plugins,
            device=place,
        )
        if shard.rank == 0:
            show_checkpoint_warnings(opened.warnings, opened.checkpoint.path.name)
        if shard.world > 1 and (unshared := _describe_unshared(opened, exits)):
            if shard.rank:
                return
            click.echo(f"{unshared} cannot be divided among ranks; only rank 0 evaluates", err=True)
            shard = ALONE
        show = partial(_show, as_json=as_json)
        options: dict[str, Any] = {"dtype": dtype, "read_as": read_as, "write": not no_write}
        if exits:
            result, path = benchmark_run(opened, exits, **options, on_result=partial(show, report=exit_report))
            if path:
                plot = plot_frontier({opened.folder.name: result}, opened.folder.path / "plots" / "frontier.svg")
                _list_files([path, plot], as_json)
            return
        _, path = evaluate_run(
            opened,
            chosen_depths,
            **options,
            timed_batches=timed,
            shard=shard,
            on_result=partial(show, report=depth_report),
            on_completion=_ignore_progress if shard.rank else _show_progress,
        )
        if path:
            _list_files([path, *(opened.folder.path / name for name in write_report(opened.folder))], as_json)


def _show(result: Mapping[str, Any], *, report: Callable[[Mapping[str, Any]], RenderableType], as_json: bool) -> None:
    """Print a result and flush it, so that it is shown even if a later write fails."""
    import json

    from loopkit.report import console

    if as_json:
        click.echo(json.dumps(result, indent=2, allow_nan=False))
    else:
        console().print(report(result))
    sys.stdout.flush()


def _list_files(paths: Sequence[Path], as_json: bool) -> None:
    """List the written files; standard output of --json is only JSON."""
    if not as_json:
        click.echo("\nwritten: " + ", ".join(map(str, paths)))


def _join(device: str) -> tuple[torch.device | str, EvaluationShard]:
    """Return the device of this process and its share of the work: all of it unless a launcher started it."""
    from loopkit.evaluation.shards import ALONE, EvaluationShard
    from loopkit.training.distributed.launch import under_launcher
    from loopkit.training.distributed.process_group import join

    if not under_launcher():
        return choose_device(device), ALONE
    process = join(device)  # type: ignore[arg-type]
    return process.device, EvaluationShard(process.rank, process.world)


def _describe_unshared(opened: TrainedRun, exits: tuple[str, ...]) -> str:
    """Name the work that ranks cannot divide; empty if they can divide all of it."""
    from loopkit.evaluation.shards import unshareable

    if exits:
        return "the early-exit benchmark"
    probes = unshareable(opened.recipe.evaluate)
    return f"the {'probe' if len(probes) == 1 else 'probes'} {', '.join(probes)}" if probes else ""


def _ignore_progress(task: str, depth: int, done: int, total: int) -> None:
    """Show nothing, on ranks other than the first."""


def _show_progress(task: str, depth: int, done: int, total: int) -> None:
    """Show the progress of a task's generations on a terminal."""
    if sys.stderr.isatty():
        click.echo(f"\r{task}, depth {depth}: {done} of {plural(total, 'generation')}", err=True, nl=done == total)
