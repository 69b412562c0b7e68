"""``loopkit plan``: what a recipe costs, before it runs."""

from __future__ import annotations

from pathlib import Path

import click

from loopkit.cli.options import json_option, recipe_options


@click.command("plan")
@click.argument("recipe")
@recipe_options
@click.option("--vocabulary", type=click.IntRange(min=1), help="Number of tokens, where the data would decide it.")
@click.option("--data", "read_data", is_flag=True, help="Read the data, for the exact vocabulary and steps.")
@click.option(
    "--mfu",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.4,
    show_default=True,
    help="Share of the ceiling reached.",
)
@click.option(
    "--flops", type=click.FloatRange(0, min_open=True), help="FLOP/s of a device; this machine's if not given."
)
@click.option("--devices", type=click.IntRange(min=1), default=1, show_default=True)
@json_option
def command(
    recipe: str,
    profiles: tuple[str, ...],
    overrides: tuple[str, ...],
    plugins: tuple[Path, ...],
    no_plugins: bool,
    vocabulary: int | None,
    read_data: bool,
    mfu: float,
    flops: float | None,
    devices: int,
    as_json: bool,
) -> None:
    """Say what RECIPE needs: parameters, FLOPs and memory by depth, steps, time. Nothing is trained or downloaded."""
    import json

    from loopkit.recipe import load_recipe
    from loopkit.report import console
    from loopkit.report.plan_table import plan_report
    from loopkit.training.plan import Assumptions, plan

    resolved = load_recipe(recipe, profiles, overrides, plugins=plugins, installed=not no_plugins)
    examples = None
    if read_data:
        from loopkit.data import prepare

        prepared = prepare(resolved.data, splits=("train",))
        vocabulary = prepared.tokenizer.size
        examples = len(prepared.splits["train"].examples(resolved.data.length, resolved.data.stride))
    found = plan(resolved, Assumptions(vocabulary, examples, mfu, flops, devices))
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        console().print(plan_report(found))
