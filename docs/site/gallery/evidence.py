"""Results of studies about a recipe: every number of the gallery comes from a ``NAME.results.json``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopkit.errors import UserError
from loopkit.recipe.read import read_file

Json = Mapping[str, Any]

SCALES = ("full", "mini", "smoke")
"""Scales from the largest to the smallest; a profile of another name ranks with mini."""


@dataclass(frozen=True)
class StudyFile:
    """A study file and its results.

    Args:
        name: Stem of the file.
        path: Its file.
        study: The file as plain data.
        results: The results file as plain data; empty if the study has not been run.
        plots: Plots by name of the profile.
    """

    name: str
    path: Path
    study: Json
    results: Json
    plots: Mapping[str, tuple[Path, ...]]

    @property
    def title(self) -> str:
        """Title of the study."""
        return str(self.study["title"])

    @property
    def page(self) -> str:
        """Path of its page, from the root of the site."""
        return f"studies/{self.name}.md"

    @property
    def profiles(self) -> Mapping[str, Json]:
        """Results by scale, the largest first."""
        profiles: Mapping[str, Json] = self.results.get("profiles", {})
        return {name: profiles[name] for name in sorted(profiles, key=rank)}

    def recipe_of(self, arm: str) -> Path:
        """Return the file of an arm's recipe, or the name of a shipped recipe."""
        recipe = str(self.study["arms"][arm]["recipe"])
        return (self.path.parent / recipe).resolve() if recipe.endswith((".yaml", ".yml")) else Path(recipe)

    def label_of(self, arm: str) -> str:
        """Return the label of an arm in tables."""
        return str(self.study["arms"][arm].get("label") or arm)


@dataclass(frozen=True)
class Evidence:
    """One arm of a study that runs a recipe.

    Args:
        study: The study.
        arm: Name of the arm.
        changes: Values that the arm sets.
    """

    study: StudyFile
    arm: str
    changes: tuple[str, ...]

    @property
    def scales(self) -> Mapping[str, Json]:
        """Runs by scale, then by seed; scales without a run of this arm are left out."""
        scales = {}
        for name, profile in self.study.profiles.items():
            seeds = profile["arms"].get(self.arm, {}).get("seeds", {})
            if seeds:
                scales[name] = seeds
        return scales

    def claims(self, scale: str) -> Mapping[str, Json]:
        """Return the judged claims in which this arm is a side."""
        judged = self.study.profiles.get(scale, {}).get("claims", {})
        return {name: claim for name, claim in judged.items() if self.arm in self._sides(name)}

    def reported(self) -> Iterator[tuple[str, tuple[str, ...], tuple[Any, ...]]]:
        """Yield the rows that the paper prints for this arm: name of the table, columns, values."""
        for name, rows in self.study.study.get("reported", {}).items():
            if isinstance(rows, Mapping) and self.arm in rows and "columns" in rows:
                yield name, tuple(map(str, rows["columns"])), tuple(rows[self.arm])

    def _sides(self, claim: str) -> set[str]:
        sides = self.study.study.get("claims", {}).get(claim, {})
        return {str(sides[side]["arm"]) for side in ("left", "right") if sides.get(side)}


def curves_of(seeds: Mapping[str, Json]) -> dict[str, Json]:
    """Return the training curves of an arm by seed; older results have none."""
    return {seed: run["curve"] for seed, run in seeds.items() if run.get("curve", {}).get("step")}


def rank(scale: str) -> int:
    """Return the rank of a scale; 0 is the largest scale."""
    return SCALES.index(scale) if scale in SCALES else SCALES.index("mini")


def read_study(path: Path) -> StudyFile:
    """Read a study, its results and its plots.

    Raises:
        RecipeError: If the file cannot be read.
        ValueError: If its results are not JSON.
    """
    results = path.with_name(f"{path.stem}.results.json")
    try:
        content = json.loads(results.read_text(encoding="utf-8")) if results.is_file() else {}
    except ValueError as error:
        raise UserError(f"{results} is not JSON ({error}); run the study again") from None
    folder = path.with_name(f"{path.stem}.plots")
    plots = {name: tuple(sorted((folder / name).glob("*.svg"))) for name in content.get("profiles", {})}
    return StudyFile(path.stem, path, read_file(path, path.name).plain(), content, plots)


def evidence_of(recipe: Path, studies: Iterable[StudyFile]) -> list[Evidence]:
    """List the arms of all studies that run a recipe."""
    evidence = []
    for study in studies:
        for arm, settings in study.study.get("arms", {}).items():
            if study.recipe_of(arm) in (recipe.resolve(), Path(recipe.stem)):
                evidence.append(Evidence(study, arm, tuple(settings.get("set") or ())))
    return evidence
