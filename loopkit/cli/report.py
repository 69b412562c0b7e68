"""``loopkit report``: one run written up, or several side by side."""

from __future__ import annotations

from pathlib import Path

import click

from loopkit.cli.completion import run_words
from loopkit.cli.options import json_option
from loopkit.errors import UserError


@click.command("report")
@click.argument("runs", nargs=-1, metavar="RUN...", shell_complete=run_words)
@click.option("--split", type=click.Choice(["validation", "test", "train"]), default="validation", show_default=True)
@click.option("--root", type=click.Path(path_type=Path), default=Path("runs"), help="Folder of the runs.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Write a comparison into this folder: Markdown with its plots, and one HTML file.",
)
@json_option
def command(runs: tuple[str, ...], split: str, root: Path, out: Path | None, as_json: bool) -> None:
    """Write the report of RUN anew, or put several RUNs side by side, at equal tokens and at equal compute.

    Without RUN, the newest. With --out FOLDER a comparison is also written as comparison.md with its plots, and as
    comparison.html, one file that asks for nothing else: the runs, their figures by depth, the settings and keys of
    recipes in which they differ, versions and machines.
    """
    import json

    from loopkit.report import compare, comparison_report, console, read_record, write_comparison, write_report
    from loopkit.runs import RunFolder

    folders = [RunFolder.open(run, root) for run in runs] or [RunFolder.open(None, root)]
    if len(folders) == 1 and out is not None:
        raise UserError(
            "--out is where a comparison goes; name two or more runs (the report of one lies in its folder)"
        )
    if len(folders) == 1 and not as_json:
        for name in write_report(folders[0]):
            click.echo(folders[0].path / name)
        return
    found = compare([read_record(folder) for folder in folders], split)
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        console().print(comparison_report(found))
    if out is not None:
        for path in write_comparison(folders, out, split):
            click.echo(f"written: {path}", err=as_json)  # JSON has standard output to itself
