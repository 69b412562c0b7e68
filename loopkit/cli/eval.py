"""``loopkit eval``: a run measured at every depth."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loopkit.cli.completion import run_words
from loopkit.cli.options import json_option, plugin_files_option
from loopkit.cli.ranks import nproc_option, start_ranks
from loopkit.errors import file_errors

if TYPE_CHECKING:
    import torch
    from rich.console import RenderableType

    from loopkit.data import Prepared
    from loopkit.evaluation.shards import EvaluationShard
    from loopkit.evaluation.trained_run import TrainedRun

REMEDY = "No result was written, and texts that were stay: the same command goes on"
"""What to do about an evaluation that lost a rank."""


@click.command("eval")
@click.argument("run", required=False, shell_complete=run_words)
@click.option(
    "--depths", help="Numbers of loops: 1-8, 1,2,4 or 8. The recipe's, or 1 to the most trained and twice that."
)
@click.option("--split", type=click.Choice(["validation", "test", "train"]), help="Part of the data.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Score a slice of about this many tokens.")
@click.option("--batch", type=click.IntRange(min=1), help="Windows per forward pass.")
@click.option("--step", type=click.IntRange(min=0), help="Checkpoint of this optimizer step; the newest if not given.")
@click.option("--dtype", type=click.Choice(["fp32", "bf16_autocast"]), help="Arithmetic; the recipe's if not given.")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option(
    "--read-as",
    type=click.Choice(["depth", "trained"]),
    default="depth",
    show_default=True,
    help="Read loop k as the last of a run of k, or as training read it.",
)
@click.option("--time", "timed", type=click.IntRange(min=0), default=0, help="Also time each depth alone on N batches.")
@click.option("--exit", "exits", multiple=True, metavar="NAME", help="Benchmark an early-exit rule; may repeat.")
@click.option(
    "--task",
    "tasks",
    multiple=True,
    metavar="NAME[=TYPE]",
    help="Ask this task instead of what the recipe asks; may repeat.",
)
@click.option(
    "--set", "-s", "overrides", multiple=True, metavar="KEY=VALUE", help="Set a value under evaluate or data."
)
@plugin_files_option
@click.option("--runs", type=click.Path(path_type=Path), default=Path("runs"), help="Folder of the runs.")
@click.option("--no-write", is_flag=True, help="Print the figures alone; leave the run's folder as it is.")
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
    """Measure RUN, a folder or a name under runs/, at every depth from one pass. Without RUN, the newest.

    The result goes to the run's eval/ folder, and its reports and plots are written anew; --no-write prints it alone.
    With --nproc, or under
    torchrun, the ranks share the batches and the texts; the figures are those of one process.
    """
    from loopkit.evaluation.overrides import check_overrides
    from loopkit.recipe.depths import parse_depths
    from loopkit.runs import RunFolder
    from loopkit.runs.atomic import check_writable

    wanted = None if depths is None else parse_depths(depths)  # before anything heavy is imported
    options = {"split": split, "max_tokens": max_tokens, "batch": batch}
    chosen = [f"evaluate.{name}={value}" for name, value in options.items() if value is not None]
    check_overrides(overrides)
    folder = RunFolder.open(run, runs)
    if not no_write:  # before any work
        for target in (folder.path, folder.evaluations, folder.path / "plots"):
            check_writable(target, "make it writable, evaluate a copy of the run, or print the figures with --no-write")
    start_ranks(nproc, REMEDY)

    from loopkit.evaluation.shards import ALONE
    from loopkit.evaluation.trained_run import open_run
    from loopkit.training.distributed.rank_errors import report_rank_errors

    with report_rank_errors(REMEDY):
        place, shard = _join(device)
        changes = (*overrides, *chosen)
        opened = open_run(folder.path, step=step, overrides=changes, tasks=tasks, plugins=plugins, device=place)
        for warning in opened.warnings if shard.rank == 0 else ():
            click.echo(f"warning: {warning}; using {opened.checkpoint.path.name}", err=True)
        if shard.world > 1 and (alone := _alone(opened, exits)):
            if shard.rank:
                return
            click.echo(f"{alone} cannot be shared out among ranks; rank 0 measures alone", err=True)
            shard = ALONE
        asked: dict[str, Any] = {"dtype": dtype, "read_as": read_as, "timed": timed, "exits": exits}
        _measure(opened, wanted, shard, **asked, write=not no_write, as_json=as_json)


def _measure(
    opened: TrainedRun,
    wanted: Sequence[int] | None,
    shard: EvaluationShard,
    *,
    dtype: str | None,
    read_as: str,
    timed: int,
    exits: tuple[str, ...],
    write: bool,
    as_json: bool,
) -> None:
    """Evaluate on this rank; the first one shows and writes what was found."""

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
            recipe, depths=opened.depths if wanted is None else wanted, timed_batches=timed, **choices
        ),
        tokenizer=opened.tokenizer,
        trained=opened.trained_as(read_as),  # type: ignore[arg-type]
        origin=opened.origin,
        completions=completions_of(opened.folder, opened.checkpoint.step) if write else None,
        on_completion=_silent if shard.rank else _writing,
        shard=shard,
    )
    if shard.rank:
        return
    _show(result.to_json(), depth_report, as_json)
    if write:
        path = write_result(result, opened.folder)
        written = write_report(opened.folder)
        _list_files([path, *(opened.folder.path / name for name in written)], as_json)


def _show(found: Mapping[str, Any], report: Callable[[Mapping[str, Any]], RenderableType], as_json: bool) -> None:
    """Print figures, before anything that may fail."""
    import json

    from loopkit.report import console

    if as_json:
        click.echo(json.dumps(found, indent=2, allow_nan=False))
    else:
        console().print(report(found))
    sys.stdout.flush()


def _list_files(paths: Sequence[Path], as_json: bool) -> None:
    """Name the files that were written; JSON has standard output to itself."""
    if not as_json:
        click.echo("\nwritten: " + ", ".join(map(str, paths)))


def _join(device: str) -> tuple[torch.device | str, EvaluationShard]:
    """Where this process measures, and its share of the work; alone unless a launcher started it."""
    import torch

    from loopkit.evaluation.shards import ALONE, EvaluationShard
    from loopkit.training.distributed.launch import under_launcher
    from loopkit.training.distributed.process_group import join

    if not under_launcher():
        return ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device, ALONE
    process = join(device)  # type: ignore[arg-type]
    return process.device, EvaluationShard(process.rank, process.world)


def _alone(opened: TrainedRun, exits: tuple[str, ...]) -> str:
    """What of the work one rank must do by itself, in words; empty where all of it can be shared out."""
    from loopkit.evaluation.shards import unshareable

    if exits:
        return "the benchmark of early exit"
    probes = unshareable(opened.recipe.evaluate)
    return f"the probe{'s' if len(probes) > 1 else ''} {', '.join(probes)}" if probes else ""


def _silent(task: str, depth: int, done: int, wanted: int) -> None:
    """Of several ranks one says how far the texts are."""


def _writing(task: str, depth: int, done: int, wanted: int) -> None:
    """Say how far the texts of a task are, where somebody is looking."""
    if sys.stderr.isatty():
        click.echo(f"\r{task}, depth {depth}: {done} of {wanted} texts", err=True, nl=done == wanted)


def _benchmark(
    opened: TrainedRun, prepared: Prepared, names: tuple[str, ...], choices: dict[str, Any], write: bool, as_json: bool
) -> None:
    """What early exit by each rule saves and costs, beside every fixed depth."""
    from loopkit.evaluation.early_exit.benchmark import exit_benchmark
    from loopkit.evaluation.settings import ExitBenchmarkSettings
    from loopkit.recipe import component
    from loopkit.registry.catalog import catalog
    from loopkit.report.plots.frontier import plot_frontier
    from loopkit.report.tables.early_exit import exit_report
    from loopkit.runs import write_json

    known = catalog().with_files(Path(file) for file in opened.recipe.values["plugins"])
    exits = {name: component("exit", name, among=known).build() for name in names}
    found = exit_benchmark(
        opened.model,
        prepared,
        exits,
        ExitBenchmarkSettings.from_recipe(opened.recipe, **choices),
        trained=opened.trained_as(choices["read_as"]),
        origin=opened.origin,
    )
    _show(found, exit_report, as_json)
    if write:
        path = opened.folder.path / "exit" / f"{opened.checkpoint.path.name}.json"
        with file_errors(path, "written"):
            path.parent.mkdir(exist_ok=True)
        write_json(path, found)
        plot = plot_frontier({opened.folder.name: found}, opened.folder.path / "plots" / "frontier.svg")
        _list_files([path, plot], as_json)
