"""``loopkit eval``: evaluate a run at every depth."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
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
)
from loopkit.cli.ranks import nproc_option, start_ranks
from loopkit.errors import file_errors
from loopkit.plural import plural

if TYPE_CHECKING:
    import torch
    from rich.console import RenderableType

    from loopkit.data import Prepared
    from loopkit.evaluation.shards import EvaluationShard
    from loopkit.evaluation.trained_run import TrainedRun

REMEDY = "No result was written. Generations are kept: the same command resumes"
"""Consequence of a lost rank, for its error message."""


@click.command("eval")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option(
    "--depths",
    help="Numbers of loops: 1-8, 1,2,4 or 8.  [default: those of the recipe, or 1 to the most trained and twice that]",
)
@click.option(
    "--split",
    type=click.Choice(["validation", "test", "train"]),
    help="Split of the data.  [default: that of the recipe]",
)
@click.option("--max-tokens", type=click.IntRange(min=1), help="Score about this many tokens.")
@click.option("--batch", type=click.IntRange(min=1), help="Windows per forward pass.  [default: that of the recipe]")
@step_option
@dtype_option
@device_option
@click.option(
    "--read-as",
    type=click.Choice(["depth", "trained"]),
    default="depth",
    show_default=True,
    help="Read loop k as the last of k loops, or as in training.",
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

    from loopkit.evaluation.shards import ALONE
    from loopkit.evaluation.trained_run import open_run
    from loopkit.training.distributed.rank_errors import report_rank_errors

    with report_rank_errors(REMEDY):
        place, shard = _join(device)
        changes = (*overrides, *settings)
        opened = open_run(folder.path, step=step, overrides=changes, tasks=tasks, plugins=plugins, device=place)
        if shard.rank == 0:
            show_checkpoint_warnings(opened.warnings, opened.checkpoint.path.name)
        if shard.world > 1 and (unshared := _describe_unshared(opened, exits)):
            if shard.rank:
                return
            click.echo(f"{unshared} cannot be divided among ranks; only rank 0 evaluates", err=True)
            shard = ALONE
        options: dict[str, Any] = {"dtype": dtype, "read_as": read_as, "timed": timed, "exits": exits}
        _evaluate(opened, chosen_depths, shard, **options, write=not no_write, as_json=as_json)


def _evaluate(
    opened: TrainedRun,
    depths: Sequence[int] | None,
    shard: EvaluationShard,
    *,
    dtype: str | None,
    read_as: str,
    timed: int,
    exits: tuple[str, ...],
    write: bool,
    as_json: bool,
) -> None:
    """Evaluate on this rank; the first one shows and writes the result."""
    from loopkit.data import prepare
    from loopkit.evaluation import completions_of, evaluate, write_result
    from loopkit.evaluation.measure import scores_text
    from loopkit.evaluation.settings import EvaluationSettings
    from loopkit.report import depth_report, write_report

    recipe = opened.recipe
    prepared = None
    if exits or timed or scores_text(recipe.evaluate):
        prepared = prepare(recipe.data, splits=(recipe.evaluate.split,), tokenizer=opened.tokenizer)
    choices: dict[str, Any] = {"dtype": dtype, "read_as": read_as}
    if exits and prepared is not None:
        _benchmark(opened, prepared, exits, choices, write, as_json)
        return
    result = evaluate(
        opened.model,
        prepared,
        EvaluationSettings.from_recipe(
            recipe, depths=opened.depths if depths is None else depths, timed_batches=timed, **choices
        ),
        tokenizer=opened.tokenizer,
        trained=opened.trained_as(read_as),  # type: ignore[arg-type]
        origin=opened.origin,
        completions=completions_of(opened.folder, opened.checkpoint.step) if write else None,
        on_completion=_ignore_progress if shard.rank else _show_progress,
        shard=shard,
    )
    if shard.rank:
        return
    _show(result.to_json(), depth_report, as_json)
    if write:
        path = write_result(result, opened.folder)
        written = write_report(opened.folder)
        _list_files([path, *(opened.folder.path / name for name in written)], as_json)


def _show(result: Mapping[str, Any], report: Callable[[Mapping[str, Any]], RenderableType], as_json: bool) -> None:
    """Print a result, before a write may fail."""
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


def _benchmark(
    opened: TrainedRun, prepared: Prepared, names: tuple[str, ...], choices: dict[str, Any], write: bool, as_json: bool
) -> None:
    """Benchmark each early-exit rule against every fixed depth."""
    from loopkit.evaluation.early_exit.benchmark import exit_benchmark
    from loopkit.evaluation.settings import ExitBenchmarkSettings
    from loopkit.recipe import component
    from loopkit.registry.catalog import catalog
    from loopkit.report.plots.frontier import plot_frontier
    from loopkit.report.tables.early_exit import exit_report
    from loopkit.runs import write_json

    components = catalog().with_files(Path(file) for file in opened.recipe.values["plugins"])
    exits = {name: component("exit", name, among=components).build() for name in names}
    result = exit_benchmark(
        opened.model,
        prepared,
        exits,
        ExitBenchmarkSettings.from_recipe(opened.recipe, **choices),
        trained=opened.trained_as(choices["read_as"]),
        origin=opened.origin,
    )
    _show(result, exit_report, as_json)
    if write:
        path = opened.folder.path / "exit" / f"{opened.checkpoint.path.name}.json"
        with file_errors(path, "written"):
            path.parent.mkdir(exist_ok=True)
        write_json(path, result)
        plot = plot_frontier({opened.folder.name: result}, opened.folder.path / "plots" / "frontier.svg")
        _list_files([path, plot], as_json)
