"""``loopkit report``: one run written up, or several side by side."""

from __future__ import annotations

from pathlib import Path

import click

from loopkit.cli.options import json_option


@click.command("report")
@click.argument("runs", nargs=-1, metavar="RUN...")
@click.option("--split", type=click.Choice(["validation", "test", "train"]), default="validation", show_default=True)
@click.option("--root", type=click.Path(path_type=Path), default=Path("runs"), help="Folder of the runs.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the plots of a comparison into this folder.")
@json_option
def command(runs: tuple[str, ...], split: str, root: Path, out: Path | None, as_json: bool) -> None:
    """Write the report of RUN anew, or put several RUNs side by side, at equal tokens and at equal compute.

    Without RUN, the newest.
    """
    import json

    from loopkit.report import compare, comparison_report, console, plot_comparison, read_record, write_report
    from loopkit.runs import RunFolder

    folders = [RunFolder.open(run, root) for run in runs] or [RunFolder.open(None, root)]
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
        for what in [budget for budget in ("tokens", "flops") if budget in found]:
            click.echo(f"written: {plot_comparison(found, out / f'by_{what}.svg', what)}")
