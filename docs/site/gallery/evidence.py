"""What studies found about a recipe: every number of the gallery comes from a study's ``NAME.results.json``."""

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
"""Scales from the most telling to the least; a profile of another name counts as much as mini."""


@dataclass(frozen=True)
class StudyFile:
    """A study as it was written, and its results if there are any.

    Args:
        name: Its file's stem.
        path: Its file.
        study: The file as plain data.
        results: The results file as plain data; empty if the study has not been run.
        plots: Plots of each profile, by its name.
    """

    name: str
    path: Path
    study: Json
    results: Json
    plots: Mapping[str, tuple[Path, ...]]

    @property
    def title(self) -> str:
        """What it is called."""
        return str(self.study["title"])

    @property
    def page(self) -> str:
        """Its page, from the root of the site."""
        return f"studies/{self.name}.md"

    @property
    def profiles(self) -> Mapping[str, Json]:
        """Results by scale, the most telling first."""
        found: Mapping[str, Json] = self.results.get("profiles", {})
        return {name: found[name] for name in sorted(found, key=rank)}

    def recipe_of(self, arm: str) -> Path:
        """The file of an arm's recipe, or the bare name of a shipped one."""
        named = str(self.study["arms"][arm]["recipe"])
        return (self.path.parent / named).resolve() if named.endswith((".yaml", ".yml")) else Path(named)

    def label_of(self, arm: str) -> str:
        """How tables call an arm."""
        return str(self.study["arms"][arm].get("label") or arm)


@dataclass(frozen=True)
class Evidence:
    """One arm of a study that runs a recipe.

    Args:
        study: The study.
        arm: Name of the arm.
        changes: What the arm sets on top of the recipe.
    """

    study: StudyFile
    arm: str
    changes: tuple[str, ...]

    @property
    def scales(self) -> Mapping[str, Json]:
        """Runs by scale, then by seed; scales without a run of this arm are left out."""
        found = {}
        for name, profile in self.study.profiles.items():
            seeds = profile["arms"].get(self.arm, {}).get("seeds", {})
            if seeds:
                found[name] = seeds
        return found

    def claims(self, scale: str) -> Mapping[str, Json]:
        """The judged claims in which this arm is a side."""
        judged = self.study.profiles.get(scale, {}).get("claims", {})
        return {name: claim for name, claim in judged.items() if self.arm in self._sides(name)}

    def reported(self) -> Iterator[tuple[str, tuple[str, ...], tuple[Any, ...]]]:
        """Rows that the paper prints for this arm: name of the table, its columns, its values."""
        for name, rows in self.study.study.get("reported", {}).items():
            if isinstance(rows, Mapping) and self.arm in rows and "columns" in rows:
                yield name, tuple(map(str, rows["columns"])), tuple(rows[self.arm])

    def _sides(self, claim: str) -> set[str]:
        written = self.study.study.get("claims", {}).get(claim, {})
        return {str(written[side]["arm"]) for side in ("left", "right") if written.get(side)}


def curves_of(seeds: Mapping[str, Json]) -> dict[str, Json]:
    """How an arm trained, by seed; empty where its results are from before curves were kept."""
    return {seed: run["curve"] for seed, run in seeds.items() if run.get("curve", {}).get("step")}


def rank(scale: str) -> int:
    """How telling a scale is; smaller is more."""
    return SCALES.index(scale) if scale in SCALES else SCALES.index("mini")


def read_study(path: Path) -> StudyFile:
    """Read a study, and what lies beside it.

    Raises:
        RecipeError: If the file cannot be read.
        ValueError: If its results are not JSON.
    """
    results = path.with_name(f"{path.stem}.results.json")
    try:
        found = json.loads(results.read_text(encoding="utf-8")) if results.is_file() else {}
    except ValueError as error:
        raise UserError(f"{results} is not JSON ({error}); run the study again") from None
    folder = path.with_name(f"{path.stem}.plots")
    drawn = {name: tuple(sorted((folder / name).glob("*.svg"))) for name in found.get("profiles", {})}
    return StudyFile(path.stem, path, read_file(path, path.name).plain(), found, drawn)


def evidence_of(recipe: Path, studies: Iterable[StudyFile]) -> list[Evidence]:
    """Every arm of every study that runs this recipe."""
    found = []
    for study in studies:
        for arm, written in study.study.get("arms", {}).items():
            if study.recipe_of(arm) in (recipe.resolve(), Path(recipe.stem)):
                found.append(Evidence(study, arm, tuple(written.get("set") or ())))
    return found
