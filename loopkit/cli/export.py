"""``loopkit export``: write the model of a run in a published form."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from loopkit.cli.completion import complete_run
from loopkit.cli.options import (
    json_option,
    plugin_files_option,
    runs_option,
    show_checkpoint_warnings,
    step_option,
    weights_option,
)
from loopkit.errors import UserError
from loopkit.plural import plural

if TYPE_CHECKING:
    from loopkit.runs.checkpoint import Weights


@click.command("export")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option(
    "--to",
    "target",
    type=click.Choice(["hf", "ouro", "huginn", "llama", "nanbeige", "gguf"]),
    default="hf",
    show_default=True,
    help="Folder that transformers loads, folder in a published form without modelling code, or file for llama.cpp.",
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder to write, or file of --to gguf.")
@step_option
@weights_option
@click.option(
    "--dtype",
    type=click.Choice(["fp32", "bf16", "fp16"]),
    help="Type of all tensors.  [default: as imported, else fp32]",
)
@click.option("--push", metavar="REPO", help="Also upload the folder to OWNER/NAME on the Hugging Face hub.")
@plugin_files_option
@runs_option
@json_option
def command(
    run: str | None,
    target: str,
    out: Path,
    step: int | None,
    weights: Weights,
    dtype: str | None,
    push: str | None,
    plugins: tuple[Path, ...],
    runs: Path,
    as_json: bool,
) -> None:
    """Export the model of RUN as a checkpoint folder. RUN is a folder or a name under runs/; the default is the newest.

    The folder contains modelling code, so that transformers loads it with trust_remote_code=True where loopkit is not
    installed. A run that was imported, or that started from one, keeps the form, the configuration, the tokenizer and
    the other files of the imported folder.
    """
    import json

    from loopkit.interop import export_run
    from loopkit.interop.hub import check_access, push_folder

    if push is not None and target == "gguf":
        raise UserError("--push uploads folders; upload the file of --to gguf with hf upload REPO FILE")
    if push is not None:
        check_access(push)
    if target == "gguf":
        _export_gguf(run, out, step=step, weights=weights, dtype=dtype, plugins=plugins, runs=runs, as_json=as_json)
        return
    result = export_run(run, out, to=target, step=step, weights=weights, dtype=dtype, plugins=plugins, root=runs)
    show_checkpoint_warnings(result.warnings, f"step {result.step}")
    address = None if push is None else push_folder(out, push)
    if as_json:
        facts = {
            "folder": str(out),
            "to": target,
            "pushed": address,
            "form": result.form,
            "step": result.step,
            "weights": weights,
            "unchanged": result.unchanged,
            "types": list(result.types),
            "notes": list(result.notes),
        }
        click.echo(json.dumps(facts, indent=2))
        return
    for note in result.notes:
        click.echo(f"note: {note}", err=True)
    averaged = "" if weights == "trained" else f", {weights} weights"
    content = (
        "tensors and configuration equal the imported folder" if result.unchanged else f"step {result.step}{averaged}"
    )
    click.echo(f"{result.form}, {', '.join(result.types)}: {content}")
    click.echo(f"written: {out}")
    if address is not None:
        click.echo(f"uploaded: {address}")


def _export_gguf(
    run: str | None,
    out: Path,
    *,
    step: int | None,
    weights: Weights,
    dtype: str | None,
    plugins: tuple[Path, ...],
    runs: Path,
    as_json: bool,
) -> None:
    import json

    from loopkit.interop.gguf import export_gguf

    result = export_gguf(run, out, step=step, weights=weights, dtype=dtype, plugins=plugins, root=runs)
    show_checkpoint_warnings(result.warnings, f"step {result.step}")
    if as_json:
        facts = {
            "file": str(out),
            "to": "gguf",
            "loops": result.loops,
            "step": result.step,
            "weights": weights,
            "notes": list(result.notes),
        }
        click.echo(json.dumps(facts, indent=2))
        return
    for note in result.notes:
        click.echo(f"note: {note}", err=True)
    averaged = "" if weights == "trained" else f", {weights} weights"
    click.echo(f"nanbeige, {plural(result.loops, 'loop')}, {dtype or 'fp32'}: step {result.step}{averaged}")
    click.echo(f"written: {out}")
