"""``loopkit import``: a published checkpoint folder becomes a run."""

from __future__ import annotations

from pathlib import Path

import click

from loopkit.cli.options import json_option


@click.command("import")
@click.argument("source", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="The run's folder; runs/ and DIR's name if not given.")
@click.option("--tokenizer", help="A tokenizer.json, its folder, or bytes; DIR's own if not given.")
@click.option(
    "--set",
    "-s",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a value of the run's recipe, not a model's.",
)
@click.option("--ignore", multiple=True, metavar="KEY", help="Take config.json's KEY to change no number; may repeat.")
@click.option(
    "--retrofit",
    metavar="STAGES",
    help="Make a looped model of layers: prelude=4,core=8,coda=4, or numbers: prelude=0-3,core=10-17,coda=18-21.",
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
    """Make a run of DIR, a checkpoint folder in Hugging Face form: config.json, safetensors, tokenizer.

    The run can be measured (loopkit eval), started from (train.start_from) and given back (loopkit export). Weights
    keep their type; nothing of DIR is executed or unpickled.
    """
    import json

    from loopkit.runs import RunFolder, check_name

    folder = RunFolder(Path("runs") / check_name(source.resolve().name) if out is None else out)

    from loopkit.interop import import_folder

    made = import_folder(source, folder, tokenizer=tokenizer, overrides=overrides, ignore=ignore, retrofit=retrofit)
    if as_json:
        facts = {
            "run": str(folder.path),
            "form": made.form,
            "parameters": made.parameters,
            "loops": made.loops,
            "tokenizer": made.tokenizer,
            "left_out": list(made.left_out),
            "notes": list(made.notes),
        }
        click.echo(json.dumps(facts, indent=2))
        return
    for note in made.notes:
        click.echo(f"note: {note}", err=True)
    if made.left_out:
        click.echo(f"note: not taken along: {', '.join(made.left_out)}", err=True)
    click.echo(f"{made.form}: {made.parameters:,} parameters, {made.loops} loops, tokenizer {made.tokenizer}")
    click.echo(f"run: {folder.path}")
    click.echo(f"evaluate it: loopkit eval {folder.path}   train from it: --set train.start_from={folder.path}")
