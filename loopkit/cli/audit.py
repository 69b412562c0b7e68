"""``loopkit audit``: is the scale of the state left to itself, and is the loop stable?"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from loopkit.cli.completion import recipe_or_run_words
from loopkit.cli.options import json_option, recipe_options
from loopkit.errors import UserError
from loopkit.exit_codes import ExitCode


@click.command("audit")
@click.argument("what", metavar="RECIPE|RUN", shell_complete=recipe_or_run_words)
@recipe_options
@click.option("--step", type=click.IntRange(min=0), help="Checkpoint of this optimizer step; the newest if not given.")
@click.option(
    "--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True, help="For a run."
)
@click.option("--runs", type=click.Path(path_type=Path), default=Path("runs"), help="Folder of the runs.")
@click.option("--strict", is_flag=True, help="Exit with 1 at a blind spot or a dead path.")
@json_option
def command(
    what: str,
    profiles: tuple[str, ...],
    overrides: tuple[str, ...],
    plugins: tuple[Path, ...],
    no_plugins: bool,
    step: int | None,
    device: str,
    runs: Path,
    strict: bool,
    as_json: bool,
) -> None:
    """Tell whether any loss sees or holds the scale of the state, and whether the loop is stable.

    A recipe is measured in seconds on a narrow model at its first weights; nothing is trained and no data is read. A
    run, a folder or a name under runs/, is measured on its weights and data. A name that both have means the recipe.
    """
    import json

    from loopkit.recipe import load_recipe

    if is_run(what, runs):
        from loopkit.evaluation.audit import audit_run

        if profiles or overrides:
            raise UserError("a run is audited as it was trained; --profile and --set belong to recipes")
        found = audit_run(what, step=step, device=_device(device), plugins=plugins, root=runs)
    else:
        recipe = load_recipe(what, profiles, overrides, plugins=plugins, installed=not no_plugins)
        if step is not None:
            raise UserError(f"--step chooses a checkpoint of a run, and {what} is a recipe")
        from loopkit.evaluation.audit import audit_recipe

        found = audit_recipe(recipe)
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=2, allow_nan=False))
    else:
        from loopkit.report.console import console
        from loopkit.report.tables.audit import audit_report

        console().print(audit_report(found.to_json()))
    if strict and (found.scale.verdict == "blind spot" or not found.reads_input):
        sys.exit(ExitCode.FAILED)


def is_run(what: str, runs: Path) -> bool:
    """Whether a name means a run: the folder of one, or a name that a run has and no recipe."""
    from loopkit.recipe import shipped_recipes

    if (Path(what) / "resolved.yaml").is_file():
        return True
    return (runs / what / "resolved.yaml").is_file() and what not in shipped_recipes()


def _device(name: str) -> str:
    import torch

    return ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name
