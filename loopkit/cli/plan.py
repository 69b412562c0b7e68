"""``loopkit plan``: estimate parameters, FLOPs, memory and time of a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from loopkit.cli.completion import complete_recipe
from loopkit.cli.options import json_option, recipe_options, vocabulary_option
from loopkit.errors import UserError

if TYPE_CHECKING:
    from loopkit.cost.cluster import Cluster


@click.command("plan")
@click.argument("recipe", shell_complete=complete_recipe)
@recipe_options
@vocabulary_option
@click.option("--data", "read_data", is_flag=True, help="Read the data, for the exact vocabulary and number of steps.")
@click.option(
    "--mfu",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.4,
    show_default=True,
    help="Assumed model FLOPs utilization (MFU), 0 to 1.",
)
@click.option(
    "--flops", type=click.FloatRange(0, min_open=True), help="Peak FLOP/s of a device.  [default: this machine's]"
)
@click.option(
    "--devices",
    "--gpus",
    "devices",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of devices.",
)
@click.option("--gpu", metavar="NAME", help="Also plan layouts on 1 to 1024 GPUs of this kind, such as h200.")
@click.option(
    "--memory",
    type=click.FloatRange(0, min_open=True),
    help="Memory of one GPU in GB.  [default: that of --gpu]",
)
@click.option(
    "--network",
    type=click.FloatRange(0, min_open=True),
    default=400.0,
    show_default=True,
    help="Network bandwidth per GPU between machines, in Gbit/s.",
)
@click.option("--per-machine", type=click.IntRange(min=1), default=8, show_default=True, help="GPUs per machine.")
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
    gpu: str | None,
    memory: float | None,
    network: float,
    per_machine: int,
    as_json: bool,
) -> None:
    """Estimate what RECIPE needs: parameters, FLOPs and memory by depth, steps, time.

    Nothing is trained. A tokenizer of the hub is downloaded, unless you give --vocabulary.
    """
    import json

    from loopkit.cost.plan import Assumptions, plan
    from loopkit.recipe import load_recipe
    from loopkit.recipe.validation.packages import package_cautions
    from loopkit.recipe.validation.warnings import ineffective
    from loopkit.report import console
    from loopkit.report.tables.plan import plan_report

    resolved = load_recipe(recipe, profiles, overrides, plugins=plugins, installed=not no_plugins)
    for line in package_cautions(resolved):
        click.echo(f"warning: {line}", err=True)
    examples = None
    if read_data:
        from loopkit.data import prepare

        prepared = prepare(resolved.data, splits=("train",))
        vocabulary = prepared.tokenizer.size
        examples = len(prepared.splits["train"].examples(resolved.data.length, resolved.data.stride))
    for line in ineffective(resolved, examples):
        click.echo(f"warning: {line}", err=True)
    cluster = None
    if gpu is not None or memory is not None:
        cluster = _cluster(gpu, memory, flops, mfu, network, per_machine)
        flops = cluster.flops_per_s
    result = plan(resolved, Assumptions(vocabulary, examples, mfu, flops, devices, cluster))
    if as_json:
        click.echo(json.dumps(result, indent=2))
    else:
        console().print(plan_report(result))


def _cluster(
    gpu: str | None, memory: float | None, flops: float | None, mfu: float, network: float, per_machine: int
) -> Cluster:
    """Build the cluster that the options describe."""
    from loopkit.cost.cluster import Cluster
    from loopkit.cost.hardware import find_gpu

    if gpu is None and flops is None:
        raise UserError("--memory needs the speed of the GPU too; add --flops or --gpu")
    known = None if gpu is None else find_gpu(gpu)
    assert known is not None or (memory is not None and flops is not None)
    options = {} if known is None else {"link": known.link}
    return Cluster(
        memory=memory * 1e9 if memory is not None else known.memory,  # type: ignore[union-attr]
        flops_per_s=flops if flops is not None else known.flops_per_s,  # type: ignore[union-attr]
        mfu=mfu,
        network=network * 1e9 / 8,
        per_machine=per_machine,
        **options,
    )
