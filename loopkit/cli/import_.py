"""``loopkit import``: turn a published checkpoint folder into a run."""

from __future__ import annotations

from pathlib import Path

import click

from loopkit.cli.options import json_option
from loopkit.plural import plural


@click.command("import")
@click.argument("source", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the run.  [default: runs/ and the name of DIR]")
@click.option("--tokenizer", help="A tokenizer.json, its folder, or bytes.  [default: that of DIR]")
@click.option(
    "--set",
    "-s",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a value of the run's recipe outside of model; may repeat.",
)
@click.option("--ignore", multiple=True, metavar="KEY", help="Accept this unknown key of config.json; may repeat.")
@click.option(
    "--retrofit",
    metavar="STAGES",
    help="Assign the layers of a plain transformer to a looped model: prelude=4,core=8,coda=4, or by number: "
    "prelude=0-3,core=10-17,coda=18-21.",
)
@json_option
def command(
    source: Path,
    out: Path | None,
    tokenizer: str | None,
    overrides: tuple[str, ...],
    ignore: tuple[str, ...],
    retrofit: str | None,
    as_json: bool,
) -> None:
    """Import DIR as a run. DIR is a checkpoint folder in Hugging Face form: config.json, safetensors, tokenizer.

    The run can be evaluated (loopkit eval), trained further (train.start_from) and exported (loopkit export). Weights
    keep their type; nothing of DIR is executed or unpickled.
    """
    import json

    from loopkit.runs import RunFolder, check_name

    folder = RunFolder(Path("runs") / check_name(source.resolve().name) if out is None else out)

    from loopkit.interop import import_folder

    result = import_folder(source, folder, tokenizer=tokenizer, overrides=overrides, ignore=ignore, retrofit=retrofit)
    if as_json:
        facts = {
            "run": str(folder.path),
            "form": result.form,
            "parameters": result.parameters,
            "loops": result.loops,
            "tokenizer": result.tokenizer,
            "left_out": list(result.left_out),
            "notes": list(result.notes),
        }
        click.echo(json.dumps(facts, indent=2))
        return
    for note in result.notes:
        click.echo(f"note: {note}", err=True)
    if result.left_out:
        click.echo(f"note: not copied: {', '.join(result.left_out)}", err=True)
    click.echo(
        f"{result.form}: {result.parameters:,} parameters, {plural(result.loops, 'loop')}, tokenizer {result.tokenizer}"
    )
    click.echo(f"run: {folder.path}")
    click.echo(f"evaluate it: loopkit eval {folder.path}   train from it: --set train.start_from={folder.path}")
