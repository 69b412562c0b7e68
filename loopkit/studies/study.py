"""Reading a study: the file, checked like a recipe, with every problem at once."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from loopkit.errors import UserError
from loopkit.recipe import Problem, RecipeError, load_recipe
from loopkit.recipe.depths import parse_depths
from loopkit.recipe.layers import find
from loopkit.recipe.merge import Merger
from loopkit.recipe.node import Origin
from loopkit.recipe.read import read_file
from loopkit.recipe.recipe import Recipe
from loopkit.recipe.resolve import Resolver
from loopkit.recipe.shipped import own_folder
from loopkit.recipe.suppress import RootCauses
from loopkit.registry.catalog import catalog, did_you_mean
from loopkit.registry.schema import SectionRef
from loopkit.registry.source import read_sections
from loopkit.studies import format as study_format
from loopkit.studies.format import Arm, Study, StudyScale
from loopkit.studies.judge import ONE_SIDED, PLACES


@dataclass(frozen=True, kw_only=True)
class LoadedStudy(Study):
    """A study that has been checked.

    Args:
        name: Its file's stem.
        path: Its file.
    """

    name: str
    path: Path

    def scale(self, name: str | None) -> StudyScale:
        """A profile by its name; without one, the recipes as they are.

        Raises:
            ValueError: If the study has none of this name.
        """
        if name is None:
            return StudyScale()
        if name not in self.profiles:
            known = ", ".join(self.profiles) or "none"
            raise UserError(
                f"{self.name} has no profile {name!r}; {did_you_mean(name, self.profiles)}profiles: {known}"
            )
        return self.profiles[name]

    def recipe(self, arm: Arm, scale: StudyScale, seed: int) -> Recipe:
        """The recipe of one run.

        Raises:
            RecipeError: If it has problems.
        """
        place, _ = find(arm.recipe, self.path.parent, Origin(self.name))
        return load_recipe(place, scale.apply, [*arm.set, f"seed={seed}"])


def load_study(study: str | Path) -> LoadedStudy:
    """Read a study file.

    Args:
        study: A path, or the name of a shipped study.

    Raises:
        RecipeError: With every problem found, those of its recipes included.
    """
    path = _file(str(study))
    node = read_file(path, str(study))
    merger = Merger(catalog(), read_sections(Path(str(study_format.__file__))))
    walk = Resolver(merger, study_format)
    _, typed = walk.section("Study", merger.merge(None, node, SectionRef("Study")), (), {})
    if problems := list(RootCauses(walk).problems()):
        raise RecipeError(problems)
    parts = {item.name: getattr(typed, item.name) for item in fields(Study)}
    loaded = LoadedStudy(**parts, name=path.stem, path=path)
    if problems := [*_sides(loaded, walk), *_recipes(loaded, walk)]:
        raise RecipeError(problems)
    return loaded


def _file(name: str) -> Path:
    if Path(name).suffix or Path(name).exists():
        return Path(name)
    shipped = {file.stem: file for file in (own_folder() / "studies").glob("*.yaml")}
    if name not in shipped:
        hint = f"{did_you_mean(name, shipped)}studies: {', '.join(sorted(shipped)) or 'none'}"
        raise RecipeError([Problem(Origin(name), (), f"no study is called '{name}'", hint)])
    return shipped[name]


def _sides(study: LoadedStudy, walk: Resolver) -> list[Problem]:
    found = []
    for name, claim in study.claims.items():
        for side, quantity in (("left", claim.left), ("right", claim.right)):
            if quantity is not None and quantity.arm not in study.arms:
                path = ("claims", name, side, "arm")
                hint = f"{did_you_mean(quantity.arm, study.arms)}arms: {', '.join(study.arms)}"
                found.append(Problem(walk.origins[path], path, f"the study has no arm '{quantity.arm}'", hint))
            if quantity is not None and (why := _unmeasured(quantity.depth, study.depths)):
                path = ("claims", name, side, "depth")
                found.append(Problem(walk.origins[path], path, why, f"the study measures {study.depths}"))
        if claim.right is None and claim.relation not in ONE_SIDED:
            place = ("claims", name, "relation")
            why = f"{claim.relation} compares left with right, which is missing"
            found.append(Problem(walk.origins[place], place, why))
    return found


def _unmeasured(depth: int | str, measured: str) -> str:
    """What is wrong with the depth of a claim."""
    if depth in PLACES:
        return ""
    try:
        missing = sorted(set(parse_depths(str(depth))) - set(parse_depths(measured)))
    except ValueError as error:
        return str(error)
    return f"depth {missing[0]} is not measured" if missing else ""


def _recipes(study: LoadedStudy, walk: Resolver) -> list[Problem]:
    """The problems of every arm's recipe at every scale."""
    found = []
    for arm_name, arm in study.arms.items():
        path = ("arms", arm_name, "recipe")
        for scale in (StudyScale(), *study.profiles.values()):
            try:
                study.recipe(arm, scale, study.seeds[0])
            except RecipeError as error:
                problems = error.problems
                found += [Problem(walk.origins[path], path, f"{p.origin}: {p.message}", p.hint) for p in problems]
    return found
