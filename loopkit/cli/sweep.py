"""``loopkit sweep``: the same experiment with other values, one run for each."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from loopkit.cli.completion import recipe_words
from loopkit.cli.options import json_option, recipe_options
from loopkit.exit_codes import ExitCode


@click.command("sweep")
@click.argument("recipe", shell_complete=recipe_words)
@recipe_options
@click.option("--runs", type=click.Path(path_type=Path), default=Path("runs"), help="Folder of the runs.")
@click.option("--nproc", type=click.IntRange(min=1), help="Ranks of each run on this machine.")
@click.option("--list", "only_list", is_flag=True, help="Say which runs there would be, and start none.")
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
    """Train every point of RECIPE's sweep block that is not done, and put all of them in one table.

    All points are checked before the first one starts. What was interrupted goes on where it stopped; a run that fails
    does not stop the others. The exit code is 1 if one failed.
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

    words = [recipe, *(word for name in profiles for word in ("--profile", name))]
    words += [word for text in overrides for word in ("--set", text)]
    words += [word for file in plugins for word in ("--plugins", str(file))]
    words += ["--no-plugins"] if no_plugins else []
    words += ["--nproc", str(nproc)] if nproc else []
    try:
        found = run_sweep(SweepRuns(points, tuple(words), runs), lambda text: click.echo(text, err=True))
    except KeyboardInterrupt:
        click.echo("\ninterrupted; the same command goes on where it stopped", err=True)
        sys.exit(ExitCode.INTERRUPTED)
    stem = f"{points[0].recipe.name}.sweep"
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        console().print(sweep_report(found))
    write_json(runs / f"{stem}.json", found)
    write_text(runs / f"{stem}.md", f"# {stem}\n\n{sweep_markdown(found)}\n")
    if not as_json:
        click.echo(f"\nwritten: {runs / stem}.json, {runs / stem}.md")
    if any(row["status"] != "finished" for row in found["points"]):
        sys.exit(ExitCode.FAILED)
