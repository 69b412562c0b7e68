"""Study files: read and validated like a recipe, with all problems reported at once."""

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
    """A validated study.

    Args:
        name: Its file's stem.
        path: Its file.
    """

    name: str
    path: Path

    def scale(self, name: str | None) -> StudyScale:
        """Return a profile by name; ``None`` is the full scale.

        Raises:
            UserError: If the profile does not exist.
        """
        if name is None:
            return StudyScale()
        if name not in self.profiles:
            profiles = ", ".join(self.profiles) or "none"
            raise UserError(
                f"{self.name} has no profile {name!r}; {did_you_mean(name, self.profiles)}profiles: {profiles}"
            )
        return self.profiles[name]

    def recipe(self, arm: Arm, scale: StudyScale, seed: int) -> Recipe:
        """Load the recipe of one run.

        Raises:
            RecipeError: If the recipe has problems.
        """
        path, _ = find(arm.recipe, self.path.parent, Origin(self.name))
        return load_recipe(path, scale.apply, [*arm.set, f"seed={seed}"])


def load_study(study: str | Path) -> LoadedStudy:
    """Load a study file.

    Args:
        study: A path, or the name of a shipped study.

    Raises:
        RecipeError: With all problems, including those of its recipes.
    """
    path = _file(str(study))
    node = read_file(path, str(study))
    merger = Merger(catalog(), read_sections(Path(str(study_format.__file__))))
    resolver = Resolver(merger, study_format)
    _, typed = resolver.section("Study", merger.merge(None, node, SectionRef("Study")), (), {})
    if problems := list(RootCauses(resolver).problems()):
        raise RecipeError(problems)
    parts = {item.name: getattr(typed, item.name) for item in fields(Study)}
    loaded = LoadedStudy(**parts, name=path.stem, path=path)
    if problems := [*_claim_problems(loaded, resolver), *_recipe_problems(loaded, resolver)]:
        raise RecipeError(problems)
    return loaded


def _file(name: str) -> Path:
    if Path(name).suffix or Path(name).exists():
        return Path(name)
    shipped = {file.stem: file for file in (own_folder() / "studies").glob("*.yaml")}
    if name not in shipped:
        hint = f"{did_you_mean(name, shipped)}studies: {', '.join(sorted(shipped)) or 'none'}"
        raise RecipeError([Problem(Origin(name), (), f"unknown study '{name}'", hint)])
    return shipped[name]


def _claim_problems(study: LoadedStudy, resolver: Resolver) -> list[Problem]:
    problems = []
    for name, claim in study.claims.items():
        for side, quantity in (("left", claim.left), ("right", claim.right)):
            if quantity is not None and quantity.arm not in study.arms:
                path = ("claims", name, side, "arm")
                hint = f"{did_you_mean(quantity.arm, study.arms)}arms: {', '.join(study.arms)}"
                problems.append(Problem(resolver.origins[path], path, f"the study has no arm '{quantity.arm}'", hint))
            if quantity is not None and (why := _unmeasured(quantity.depth, study.depths)):
                path = ("claims", name, side, "depth")
                problems.append(Problem(resolver.origins[path], path, why, f"the study measures {study.depths}"))
        if claim.right is None and claim.relation not in ONE_SIDED:
            relation = ("claims", name, "relation")
            why = f"{claim.relation} compares left with right, which is missing"
            problems.append(Problem(resolver.origins[relation], relation, why))
    return problems


def _unmeasured(depth: int | str, measured: str) -> str:
    """Return why the depth of a claim is not measured; empty if it is."""
    if depth in PLACES:
        return ""
    try:
        missing = sorted(set(parse_depths(str(depth))) - set(parse_depths(measured)))
    except ValueError as error:
        return str(error)
    return f"depth {missing[0]} is not measured" if missing else ""


def _recipe_problems(study: LoadedStudy, resolver: Resolver) -> list[Problem]:
    """Return the problems of every arm's recipe at every scale."""
    result = []
    for arm_name, arm in study.arms.items():
        path = ("arms", arm_name, "recipe")
        for scale in (StudyScale(), *study.profiles.values()):
            try:
                study.recipe(arm, scale, study.seeds[0])
            except RecipeError as error:
                origin = resolver.origins[path]
                result += [Problem(origin, path, f"{p.origin}: {p.message}", p.hint) for p in error.problems]
    return result
