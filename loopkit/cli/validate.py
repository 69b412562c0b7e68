"""``loopkit validate``: everything that is wrong with recipes, at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from loopkit.cli.completion import recipe_words
from loopkit.cli.options import json_option, recipe_options
from loopkit.errors import UserError
from loopkit.exit_codes import ExitCode

if TYPE_CHECKING:
    from loopkit.recipe import Problem, Recipe


@click.command("validate")
@click.argument("recipes", nargs=-1, required=True, metavar="RECIPE...", shell_complete=recipe_words)
@recipe_options
@click.option("--build", is_flag=True, help="Also build each model and run a narrow twin of it; this imports torch.")
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
    """Check recipes, each with all its profiles and points of its sweep, without running anything.

    RECIPE is a path or the name of a shipped recipe. With --profile or --set, that combination alone is checked.
    The exit code is 2 if anything is wrong. A package that a component needs and this machine lacks is only warned of:
    the recipe may run elsewhere.
    """
    import json

    from loopkit.recipe import RecipeError, load_recipe
    from loopkit.recipe.recipe import profiles_of
    from loopkit.recipe.sweep import sweep_problems
    from loopkit.recipe.validation.packages import package_cautions
    from loopkit.recipe.validation.warnings import ineffective

    found: list[Problem] = []
    good: list[Recipe] = []
    for recipe in recipes:
        try:
            if profiles or overrides:
                good.append(load_recipe(recipe, profiles, overrides, plugins=plugins, installed=not no_plugins))
                continue
            for item in profiles_of(recipe, plugins=plugins, installed=not no_plugins):
                if isinstance(item, RecipeError):
                    found += item.problems
                else:
                    good.append(item)
            found += sweep_problems(recipe, plugins=plugins, installed=not no_plugins)
        except RecipeError as error:
            found += error.problems
    found = RecipeError(found).problems
    if build:
        found += _build_problems(good)
    lines = [line for recipe in good for line in package_cautions(recipe)]
    lines += [f"{recipe.name}: {line}" for recipe in good for line in ineffective(recipe)]
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
            for p in found
        ]
        click.echo(json.dumps({"recipes": list(recipes), "problems": rows, "cautions": cautions}, indent=2))
    else:
        for line in cautions:
            click.echo(f"warning: {line}", err=True)
        if found:
            raise RecipeError(found)
        click.echo(f"{len(recipes)} recipe{'s' if len(recipes) > 1 else ''}, no problem")
    if found:
        sys.exit(ExitCode.USER_ERROR)


def _build_problems(recipes: Sequence[Recipe]) -> list[Problem]:
    """What is found when each recipe's model is built and run, in the order of the recipes."""
    from loopkit.evaluation.audit.preflight import preflight
    from loopkit.recipe import Origin, Problem

    problems = []
    for recipe in recipes:
        try:
            preflight(recipe)
        except Exception as error:  # a plugin may raise anything
            said = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
            problems.append(Problem(Origin(recipe.name), (), said))
    return problems
