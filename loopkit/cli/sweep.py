"""``loopkit sweep``: train a recipe once for each combination of values."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from loopkit.cli.completion import complete_recipe
from loopkit.cli.options import json_option, recipe_options, runs_option
from loopkit.exit_codes import ExitCode


@click.command("sweep")
@click.argument("recipe", shell_complete=complete_recipe)
@recipe_options
@runs_option
@click.option("--nproc", type=click.IntRange(min=1), help="Number of ranks of each run.  [default: 1]")
@click.option("--list", "only_list", is_flag=True, help="List the runs without starting them.")
@json_option
def command(
    recipe: str,
    profiles: tuple[str, ...],
    overrides: tuple[str, ...],
    plugins: tuple[Path, ...],
    no_plugins: bool,
    runs: Path,
    nproc: int | None,
    only_list: bool,
    as_json: bool,
) -> None:
    """Train every unfinished point of RECIPE's sweep block, and show all points in one table.

    All points are checked before the first one starts. Interrupted runs are resumed; a failed run does not stop the
    others. The exit code is 1 if a run failed.
    """
    import json

    from loopkit.recipe.sweep import load_sweep

    points = load_sweep(recipe, profiles, overrides, plugins=plugins, installed=not no_plugins)
    if only_list:
        listed = [{"run": point.name, "values": dict(point.values)} for point in points]
        click.echo(json.dumps(listed, indent=2) if as_json else "\n".join(point.name for point in points))
        return

    from loopkit.report import console
    from loopkit.report.tables.sweep import sweep_markdown, sweep_report
    from loopkit.runs import write_json, write_text
    from loopkit.studies.sweep import SweepRuns, run_sweep

    arguments = [recipe, *(word for name in profiles for word in ("--profile", name))]
    arguments += [word for text in overrides for word in ("--set", text)]
    arguments += [word for file in plugins for word in ("--plugins", str(file))]
    arguments += ["--no-plugins"] if no_plugins else []
    arguments += ["--nproc", str(nproc)] if nproc else []
    try:
        result = run_sweep(SweepRuns(points, tuple(arguments), runs), lambda text: click.echo(text, err=True))
    except KeyboardInterrupt:
        click.echo("\ninterrupted; run the same command to resume", err=True)
        sys.exit(ExitCode.INTERRUPTED)
    stem = f"{points[0].recipe.name}.sweep"
    if as_json:
        click.echo(json.dumps(result, indent=2))
    else:
        console().print(sweep_report(result))
    write_json(runs / f"{stem}.json", result)
    write_text(runs / f"{stem}.md", f"# {stem}\n\n{sweep_markdown(result)}\n")
    if not as_json:
        click.echo(f"\nwritten: {runs / stem}.json, {runs / stem}.md")
    if any(row["status"] != "finished" for row in result["points"]):
        sys.exit(ExitCode.FAILED)
