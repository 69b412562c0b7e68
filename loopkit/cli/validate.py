"""``loopkit validate``: check recipes and report all problems at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from loopkit.cli.completion import complete_recipe
from loopkit.cli.options import json_option, recipe_options
from loopkit.errors import UserError
from loopkit.exit_codes import ExitCode
from loopkit.plural import plural

if TYPE_CHECKING:
    from loopkit.recipe import Problem, Recipe


@click.command("validate")
@click.argument("recipes", nargs=-1, required=True, metavar="RECIPE...", shell_complete=complete_recipe)
@recipe_options
@click.option("--build", is_flag=True, help="Also build each model and run a narrow version of it; imports torch.")
@json_option
def command(
    recipes: tuple[str, ...],
    profiles: tuple[str, ...],
    overrides: tuple[str, ...],
    plugins: tuple[Path, ...],
    no_plugins: bool,
    build: bool,
    as_json: bool,
) -> None:
    """Check recipes with all their profiles and sweep points, without running them.

    RECIPE is a path or the name of a shipped recipe. With --profile or --set, only that combination is checked. The
    exit code is 2 if there is a problem. A missing package of a component is only a warning, because the recipe may
    run on another machine.
    """
    import json

    from loopkit.recipe import RecipeError, load_recipe
    from loopkit.recipe.recipe import profiles_of
    from loopkit.recipe.sweep import sweep_problems
    from loopkit.recipe.validation.packages import package_cautions
    from loopkit.recipe.validation.warnings import ineffective

    problems: list[Problem] = []
    valid: list[Recipe] = []
    for recipe in recipes:
        try:
            if profiles or overrides:
                valid.append(load_recipe(recipe, profiles, overrides, plugins=plugins, installed=not no_plugins))
                continue
            for item in profiles_of(recipe, plugins=plugins, installed=not no_plugins):
                if isinstance(item, RecipeError):
                    problems += item.problems
                else:
                    valid.append(item)
            problems += sweep_problems(recipe, plugins=plugins, installed=not no_plugins)
        except RecipeError as error:
            problems += error.problems
    problems = RecipeError(problems).problems
    if build:
        problems += _build_problems(valid)
    lines = [line for recipe in valid for line in package_cautions(recipe)]
    lines += [f"{recipe.name}: {line}" for recipe in valid for line in ineffective(recipe)]
    cautions = list(dict.fromkeys(lines))
    if as_json:
        rows = [
            {
                "file": p.origin.file,
                "line": p.origin.line,
                "key": ".".join(p.path),
                "message": p.message,
                "hint": p.hint,
            }
            for p in problems
        ]
        click.echo(json.dumps({"recipes": list(recipes), "problems": rows, "cautions": cautions}, indent=2))
    else:
        for line in cautions:
            click.echo(f"warning: {line}", err=True)
        if problems:
            raise RecipeError(problems)
        click.echo(f"{plural(len(recipes), 'recipe')}, no problems")
    if problems:
        sys.exit(ExitCode.USER_ERROR)


def _build_problems(recipes: Sequence[Recipe]) -> list[Problem]:
    """Build and run the model of each recipe, and return the problems in the order of the recipes."""
    from loopkit.evaluation.audit.preflight import preflight
    from loopkit.recipe import Origin, Problem

    problems = []
    for recipe in recipes:
        try:
            preflight(recipe)
        except Exception as error:  # a plugin may raise anything
            message = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
            problems.append(Problem(Origin(recipe.name), (), message))
    return problems
