"""One recipe of the gallery: its values, components, cost and evidence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from docs.site.gallery.evidence import Evidence, StudyFile, evidence_of, rank
from loopkit.recipe import Recipe, RecipeError, load_recipe, problems_of
from loopkit.recipe.difference import Difference, experiment_differences
from loopkit.recipe.layers import find, load_layers
from loopkit.recipe.node import Origin
from loopkit.recipe.read import read_file

VALIDATED = "validated"
ABSENT = "none"
"""The name of the component that does nothing, in every kind that has one."""


@dataclass(frozen=True)
class Cost:
    """The cost of a recipe without a profile, estimated without running it.

    Args:
        parameters: Parameters of the model, shared ones counted once; ``None`` if the vocabulary depends on the data.
        flops_per_token: Training FLOPs per token at the mean number of loops.
        training_flops: Training FLOPs in total; ``None`` if the number of steps depends on the data.
        unknown: What is unknown, and why.
    """

    parameters: int | None = None
    flops_per_token: float | None = None
    training_flops: float | None = None
    unknown: str = ""


@dataclass(frozen=True)
class RecipeEntry:
    """The content of a recipe's page.

    Args:
        recipe: The resolved recipe.
        path: Its file.
        text: Text of the file.
        profiles: Names of its profiles, including those of its parents.
        parent: Name of the parent as written, or ``None``.
        changes: Differences from the resolved parent; ``None`` without a parent that is complete.
        problems: Errors of the recipe and its profiles.
        evidence: The arms of studies that run it.
        cost: Its cost.
    """

    recipe: Recipe
    path: Path
    text: str
    profiles: tuple[str, ...]
    parent: str | None
    changes: tuple[Difference, ...] | None
    problems: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    cost: Cost = field(default_factory=Cost)

    @property
    def name(self) -> str:
        """Name of the recipe."""
        return self.path.stem

    @property
    def page(self) -> str:
        """Path of its page, from the root of the site."""
        return f"gallery/{self.name}.md"

    @property
    def status(self) -> str:
        """The largest scale at which a study ran the unchanged recipe, else ``validated`` or ``invalid``."""
        if self.problems:
            return "invalid"
        scales = [scale for evidence in self.evidence if not evidence.changes for scale in evidence.scales]
        return min(scales, key=rank, default=VALIDATED)

    @property
    def components(self) -> tuple[tuple[str, str], ...]:
        """Kind and name of every component in use, except those that do nothing."""
        used = {(spec.kind, spec.name) for spec in self.recipe.specs.values() if spec.name != ABSENT}
        return tuple(sorted(used))


def read_entry(path: Path, studies: Iterable[StudyFile], cost: Cost | None = None) -> RecipeEntry:
    """Read and validate a recipe, and compare it with its parent.

    Args:
        path: File of the recipe.
        studies: Studies that may run it.
        cost: Its cost, if estimated.

    Raises:
        RecipeError: If it cannot be resolved.
    """
    layers = load_layers(path)
    recipe = load_recipe(path)
    extends = read_file(path, path.name).value.get("extends")
    parent = None if extends is None else extends.value
    return RecipeEntry(
        recipe=recipe,
        path=path,
        text=path.read_text(encoding="utf-8"),
        profiles=tuple(layers.profiles),
        parent=parent,
        changes=None if parent is None else _changes(recipe, path, parent),
        problems=tuple(problem.message for problem in problems_of(path)),
        evidence=tuple(evidence_of(path, studies)),
        cost=cost or Cost(),
    )


def _changes(recipe: Recipe, path: Path, parent: str) -> tuple[Difference, ...] | None:
    file, _ = find(parent, path.parent, Origin(path.name))
    try:
        parent_recipe = load_recipe(file)
    except RecipeError:  # a parent may leave required values to its children
        return None
    return tuple(experiment_differences(parent_recipe.values, recipe.values))
