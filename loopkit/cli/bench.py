"""``loopkit bench``: training throughput on this machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click

from loopkit.cli.completion import complete_recipe
from loopkit.cli.options import json_option, recipe_options, vocabulary_option
from loopkit.cli.ranks import nproc_option, start_ranks

REMEDY = "Nothing was measured"
"""Consequence of a lost rank, for its error message."""


@click.command("bench")
@click.argument("recipe", shell_complete=complete_recipe)
@recipe_options
@click.option("--loops", type=click.IntRange(min=1), help="Loops of each step.  [default: the mean of the schedule]")
@click.option("--steps", type=click.IntRange(min=1), default=5, show_default=True, help="Optimizer steps to time.")
@vocabulary_option
@nproc_option
@json_option
def command(
    recipe: str,
    profiles: tuple[str, ...],
    overrides: tuple[str, ...],
    plugins: tuple[Path, ...],
    no_plugins: bool,
    loops: int | None,
    steps: int,
    vocabulary: int | None,
    nproc: int | None,
    as_json: bool,
) -> None:
    """Time optimizer steps of RECIPE on random tokens: seconds, tokens/s, MFU and memory.

    No data is read and no run is created. The steps are those at the end of a run, with every regularizer active. MFU
    is relative to a matrix product measured on the same device. With --nproc, or under torchrun, all devices are timed
    together.
    """
    import json

    from loopkit.recipe import load_recipe

    resolved = load_recipe(recipe, profiles, overrides, plugins=plugins, installed=not no_plugins)
    start_ranks(nproc, REMEDY)

    from loopkit.cost.plan import known_vocabulary
    from loopkit.report import console
    from loopkit.report.tables.bench import bench_report
    from loopkit.training.bench import bench
    from loopkit.training.distributed.process_group import join
    from loopkit.training.distributed.rank_errors import report_rank_errors
    from loopkit.training.errors import Ended

    size = vocabulary or known_vocabulary(resolved)
    try:
        with report_rank_errors(REMEDY):
            process = join(resolved.train.device)
            result = bench(resolved, process, vocabulary=size, loops=loops, steps=steps, say=_say(process.first))
    except Ended as stop:
        click.echo(f"error: {stop}", err=True)
        sys.exit(stop.exit_code)
    if not process.first:
        return
    if as_json:
        click.echo(json.dumps(result, indent=2))
    else:
        console().print(bench_report(result))


def _say(first: bool) -> Callable[[str], None]:
    """Return a function that shows progress, on the first rank only."""
    return lambda text: click.echo(text, err=True) if first else None
