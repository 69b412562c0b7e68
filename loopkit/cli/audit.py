"""``loopkit audit``: whether the state norm is controlled, and whether the recurrence is stable."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from loopkit.cli.completion import complete_recipe_or_run
from loopkit.cli.options import (
    choose_device,
    device_option,
    json_option,
    recipe_options,
    runs_option,
    step_option,
    weights_option,
)
from loopkit.errors import UserError
from loopkit.exit_codes import ExitCode

if TYPE_CHECKING:
    from loopkit.runs.checkpoint import Weights


@click.command("audit")
@click.argument("what", metavar="RECIPE|RUN", shell_complete=complete_recipe_or_run)
@recipe_options
@step_option
@weights_option
@device_option
@runs_option
@click.option(
    "--strict",
    is_flag=True,
    help="Exit with code 1 at a blind spot, or if the logits do not depend on the tokens.",
)
@json_option
def command(
    what: str,
    profiles: tuple[str, ...],
    overrides: tuple[str, ...],
    plugins: tuple[Path, ...],
    no_plugins: bool,
    step: int | None,
    weights: Weights,
    device: str,
    runs: Path,
    strict: bool,
    as_json: bool,
) -> None:
    """Check whether any loss depends on the state norm, and whether the recurrence is stable.

    A RECIPE is measured in seconds on a narrow model with initial weights; nothing is trained and no data is read. A
    RUN, a folder or a name under runs/, is measured with its weights and data.
    If a name is both a recipe and a run, the recipe is audited.
    """
    import json

    from loopkit.recipe import load_recipe

    if is_run(what, runs):
        from loopkit.evaluation.audit import audit_run

        if profiles or overrides:
            raise UserError("a run is audited as it was trained; use --profile and --set only with a recipe")
        result = audit_run(what, step=step, weights=weights, device=choose_device(device), plugins=plugins, root=runs)
    else:
        recipe = load_recipe(what, profiles, overrides, plugins=plugins, installed=not no_plugins)
        if step is not None:
            raise UserError(f"--step selects a checkpoint of a run, but {what} is a recipe; omit --step")
        if weights != "trained":
            raise UserError(f"--weights selects weights of a run, but {what} is a recipe; omit --weights")
        from loopkit.evaluation.audit import audit_recipe

        result = audit_recipe(recipe)
    if as_json:
        click.echo(json.dumps(result.to_json(), indent=2, allow_nan=False))
    else:
        from loopkit.report.console import console
        from loopkit.report.tables.audit import audit_report

        console().print(audit_report(result.to_json()))
    if strict and (result.scale.verdict == "blind spot" or not result.reads_input):
        sys.exit(ExitCode.FAILED)


def is_run(what: str, runs: Path) -> bool:
    """Whether a name stands for a run: its folder, or a name that no recipe has."""
    from loopkit.recipe import shipped_recipes

    if (Path(what) / "resolved.yaml").is_file():
        return True
    return (runs / what / "resolved.yaml").is_file() and what not in shipped_recipes()
