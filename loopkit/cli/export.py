"""``loopkit export``: a run's model in a published form."""

from __future__ import annotations

from pathlib import Path

import click

from loopkit.cli.completion import run_words
from loopkit.cli.options import json_option, plugin_files_option


@click.command("export")
@click.argument("run", required=False, shell_complete=run_words)
@click.option("--to", "target", type=click.Choice(["hf"]), default="hf", show_default=True, help="Which form.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The folder to write.")
@click.option("--step", type=click.IntRange(min=0), help="Checkpoint of this optimizer step; the newest if not given.")
@click.option(
    "--dtype", type=click.Choice(["fp32", "bf16", "fp16"]), help="Type of all tensors; as imported, else fp32."
)
@plugin_files_option
@click.option("--runs", type=click.Path(path_type=Path), default=Path("runs"), help="Folder of the runs.")
@json_option
def command(
    run: str | None,
    target: str,
    out: Path,
    step: int | None,
    dtype: str | None,
    plugins: tuple[Path, ...],
    runs: Path,
    as_json: bool,
) -> None:
    """Write the model of RUN, a folder or a name under runs/, as a checkpoint folder. Without RUN, the newest.

    A run that was imported, or started from one that was, gives its folder back: the same files, names, types and
    shards, with the weights that it has now.
    """
    import json

    from loopkit.interop import export_run

    made = export_run(run, out, step=step, dtype=dtype, plugins=plugins, root=runs)
    for warning in made.warnings:
        click.echo(f"warning: {warning}; using step {made.step}", err=True)
    if as_json:
        facts = {
            "folder": str(out),
            "to": target,
            "form": made.form,
            "step": made.step,
            "unchanged": made.unchanged,
            "types": list(made.types),
            "notes": list(made.notes),
        }
        click.echo(json.dumps(facts, indent=2))
        return
    for note in made.notes:
        click.echo(f"note: {note}", err=True)
    what = "tensors and configuration equal the imported folder" if made.unchanged else f"step {made.step}"
    click.echo(f"{made.form}, {', '.join(made.types)}: {what}")
    click.echo(f"written: {out}")
