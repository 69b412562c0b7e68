"""``loopkit report``: write the report of a run, or compare several runs."""

from __future__ import annotations

from pathlib import Path

import click

from loopkit.cli.completion import complete_run
from loopkit.cli.options import json_option
from loopkit.errors import UserError


@click.command("report")
@click.argument("runs", nargs=-1, metavar="RUN...", shell_complete=complete_run)
@click.option(
    "--split",
    type=click.Choice(["validation", "test", "train"]),
    default="validation",
    show_default=True,
    help="Split to compare.",
)
@click.option(
    "--runs",
    "root",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="Folder of the runs.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Also write a comparison to this folder.",
)
@json_option
def command(runs: tuple[str, ...], split: str, root: Path, out: Path | None, as_json: bool) -> None:
    """Write the report of RUN, or compare several RUNs at equal tokens and at equal compute.

    The default is the newest run. --out writes a comparison as comparison.md with its plots, and as comparison.html,
    one self-contained file: results by depth, differing settings and recipe keys, versions and machines.
    """
    import json

    from loopkit.report import compare, comparison_report, console, read_record, write_comparison, write_report
    from loopkit.runs import RunFolder

    folders = [RunFolder.open(run, root) for run in runs] or [RunFolder.open(None, root)]
    if len(folders) == 1 and out is not None:
        raise UserError(
            "--out writes a comparison; name two or more runs (the report of a single run is in its folder)"
        )
    if len(folders) == 1 and not as_json:
        for name in write_report(folders[0]):
            click.echo(folders[0].path / name)
        return
    result = compare([read_record(folder) for folder in folders], split)
    if as_json:
        click.echo(json.dumps(result, indent=2))
    else:
        console().print(comparison_report(result))
    if out is not None:
        for path in write_comparison(folders, out, split):
            click.echo(f"written: {path}", err=as_json)  # standard output of --json is only JSON
