"""One recipe of the gallery: what it says, what it is built of, what it costs, and what is known about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from docs.site.gallery.evidence import Evidence, StudyFile, evidence_of, rank
from loopkit.recipe import Recipe, RecipeError, load_recipe, problems_of
from loopkit.recipe.layers import find, load_layers
from loopkit.recipe.node import Origin
from loopkit.recipe.read import read_file
from loopkit.report.difference import Change, difference

VALIDATED = "validated"
ABSENT = "none"
"""The name of a component that does nothing, in every kind that has one."""


@dataclass(frozen=True)
class Cost:
    """What a recipe needs as written, planned before anything runs.

    Args:
        parameters: Parameters of the model, shared ones counted once; None where only the data decides the vocabulary.
        flops_per_token: Training FLOPs per token at the mean number of loops.
        training_flops: Of the whole training; None where only the data says how many steps it is.
        why: What is not known, and why.
    """

    parameters: int | None = None
    flops_per_token: float | None = None
    training_flops: float | None = None
    why: str = ""


@dataclass(frozen=True)
class RecipeEntry:
    """A recipe and everything its page says.

    Args:
        recipe: The resolved recipe.
        path: Its file.
        text: Its file's text.
        profiles: Names of its profiles, its parents' included.
        parent: Name of the parent as written, or None.
        changes: What it changes of the resolved parent; None without a parent that is complete by itself.
        problems: What is wrong with it or one of its profiles.
        evidence: The arms of studies that run it.
        cost: What it needs.
    """

    recipe: Recipe
    path: Path
    text: str
    profiles: tuple[str, ...]
    parent: str | None
    changes: tuple[Change, ...] | None
    problems: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    cost: Cost = field(default_factory=Cost)

    @property
    def name(self) -> str:
        """The recipe's name."""
        return self.path.stem

    @property
    def page(self) -> str:
        """Its page, from the root of the site."""
        return f"gallery/{self.name}.md"

    @property
    def status(self) -> str:
        """The most telling scale at which the recipe itself was run in a study, else that it is valid."""
        if self.problems:
            return "invalid"
        scales = [scale for found in self.evidence if not found.changes for scale in found.scales]
        return min(scales, key=rank, default=VALIDATED)

    @property
    def components(self) -> tuple[tuple[str, str], ...]:
        """Kind and name of every component in use; those that do nothing are left out."""
        used = {(spec.kind, spec.name) for spec in self.recipe.specs.values() if spec.name != ABSENT}
        return tuple(sorted(used))


def read_entry(path: Path, studies: Iterable[StudyFile], cost: Cost | None = None) -> RecipeEntry:
    """Read, check and compare one recipe.

    Args:
        path: The recipe's file.
        studies: Where to look for evidence.
        cost: What it needs, if that was planned.

    Raises:
        RecipeError: If it cannot be resolved.
    """
    layers = load_layers(path)
    recipe = load_recipe(path)
    written = read_file(path, path.name).value.get("extends")
    parent = None if written is None else written.value
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


def _changes(recipe: Recipe, path: Path, parent: str) -> tuple[Change, ...] | None:
    file, _ = find(parent, path.parent, Origin(path.name))
    try:
        above = load_recipe(file)
    except RecipeError:  # a parent may leave to its children what only they know
        return None
    return tuple(difference(above.values, recipe.values))
