"""``loopkit eval``: a run measured at every depth."""

from __future__ import annotations

from pathlib import Path

import click

from loopkit.cli.options import json_option


@click.command("eval")
@click.argument("run", required=False)
@click.option("--depths", help="Numbers of loops: 1-8, 1,2,4 or 8. As the recipe says if not given.")
@click.option("--split", type=click.Choice(["validation", "test", "train"]), help="Part of the data.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Score a slice of about this many tokens.")
@click.option("--batch", type=click.IntRange(min=1), help="Windows per forward pass.")
@click.option("--step", type=click.IntRange(min=0), help="Checkpoint of this optimizer step; the newest if not given.")
@click.option("--dtype", type=click.Choice(["fp32", "bf16_autocast"]), help="Arithmetic; the recipe's if not given.")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option(
    "--read-as",
    type=click.Choice(["depth", "trained"]),
    default="depth",
    show_default=True,
    help="Read loop k as the last of a run of k, or as training read it.",
)
@click.option("--time", "timed", type=click.IntRange(min=0), default=0, help="Also time each depth alone on N batches.")
@click.option(
    "--set", "-s", "overrides", multiple=True, metavar="KEY=VALUE", help="Set a value under evaluate or data."
)
@click.option("--runs", type=click.Path(path_type=Path), default=Path("runs"), help="Folder of the runs.")
@json_option
def command(
    run: str | None,
    depths: str | None,
    split: str | None,
    max_tokens: int | None,
    batch: int | None,
    step: int | None,
    dtype: str | None,
    device: str,
    read_as: str,
    timed: int,
    overrides: tuple[str, ...],
    runs: Path,
    as_json: bool,
) -> None:
    """Measure RUN, a folder or a name under runs/, at every depth from one pass. Without RUN, the newest.

    The result goes to the run's eval/ folder, and its report.md and plots are written anew.
    """
    from loopkit.recipe.depths import parse_depths

    wanted = None if depths is None else parse_depths(depths)  # before anything heavy is imported

    import json

    from loopkit.data import prepare
    from loopkit.evaluation import evaluate, write_result
    from loopkit.evaluation.trained_run import open_run
    from loopkit.report import console, depth_report, write_report

    options = {"split": split, "max_tokens": max_tokens, "batch": batch}
    chosen = [f"evaluate.{name}={value}" for name, value in options.items() if value is not None]
    _only_measurement(overrides)
    opened = open_run(run, step=step, overrides=(*overrides, *chosen), device=_device(device), root=runs)
    for warning in opened.warnings:
        click.echo(f"warning: {warning}; using {opened.checkpoint.path.name}", err=True)
    recipe = opened.recipe
    prepared = prepare(recipe.data, splits=(recipe.evaluate.split,), tokenizer=opened.tokenizer)
    result = evaluate(
        opened.model,
        prepared,
        recipe.evaluate,
        wanted,
        length=recipe.data.length,
        dtype=dtype or recipe.train.precision,  # type: ignore[arg-type]
        read_as=read_as,  # type: ignore[arg-type]
        trained=opened.trained,
        origin=opened.origin,
        timed_batches=timed,
    )
    path = write_result(result, opened.folder)
    written = write_report(opened.folder)
    if as_json:
        click.echo(json.dumps(result.to_json(), indent=2, allow_nan=False))
    else:
        console().print(depth_report(result.to_json()))
        click.echo("\nwritten: " + ", ".join([str(path), *(str(opened.folder.path / name) for name in written)]))


def _only_measurement(overrides: tuple[str, ...]) -> None:
    for text in overrides:
        if not text.strip().startswith(("evaluate.", "data.source.", "evaluate=")):
            raise ValueError(
                f"--set {text}: a trained run can be measured otherwise (evaluate.*, data.source.*), not changed"
            )


def _device(name: str) -> str:
    import torch

    return ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name
