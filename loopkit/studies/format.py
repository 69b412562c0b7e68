"""The study format: the recipes of a study, and a paper's claims as data.

loopkit reads this module as text, like the recipe format; ``loopkit/studies/study.py`` parses a file into its classes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import MinLen
from pydantic import NonNegativeInt, PositiveInt

from loopkit.registry.spec import Spec

Relation = Literal[
    "below",
    "above",
    "times_at_least",
    "times_at_most",
    "equal_within",
    "lower_by",
    "differs_below",
    "magnitude_below",
]


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One experiment of a study.

    Args:
        recipe: A recipe, as a path relative to the study or the name of a shipped one.
        label: Its label in tables and plots.
        set: Overrides on top of the recipe, as key.path=value.
    """

    recipe: str
    label: str = ""
    set: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ArmFigure:
    """A measured figure of one arm.

    Args:
        arm: Name of the arm.
        figure: Figure in a depth's row of the evaluation, with dots for nested values, such as state_norm.mean.
        depth: One or more rows, such as first, last, all, inner (all but the last), 4 or 4-9,16; of several rows, the
            claim uses the strictest value.
    """

    arm: str
    figure: str
    depth: PositiveInt | str = "last"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement of the paper that a measurement can support or contradict.

    Args:
        says: The statement, in a sentence.
        must: Whether reproduce fails if the claim does not hold; other claims are only reported.
        left: The figure of the claim.
        relation: below and above compare left with the bound; times_at_least and times_at_most the ratio left / right;
            equal_within the relative difference of left and right; lower_by the share by which left is below right;
            differs_below the absolute difference of left and right; magnitude_below the absolute value of left.
        right: The figure to compare with, if the relation needs one.
        bound: The threshold, fixed before the measurement.
        somewhere: Whether one of several depths suffices; then the claim uses the most favourable value.
        paper: The figures that the paper reports.
    """

    says: str
    must: bool = False
    left: ArmFigure
    relation: Relation
    right: ArmFigure | None = None
    bound: float
    somewhere: bool = False
    paper: str = ""


@dataclass(frozen=True, kw_only=True)
class StudyScale:
    """A study at another scale.

    Args:
        apply: Profiles applied to every recipe.
        seeds: Replaces the seeds of the study.
        exit_sequences: Sequences for each half of the early-exit benchmark.
    """

    apply: list[str] = field(default_factory=list)
    seeds: Annotated[list[NonNegativeInt], MinLen(1)] | None = None
    exit_sequences: PositiveInt | None = None


@dataclass(frozen=True, kw_only=True)
class Study:
    """A set of experiments, and the claims that they test.

    Args:
        study: Version of this format.
        title: Title of the study.
        paper: Source of the claims.
        description: What the study shows, in a sentence.
        seeds: Every arm runs once with each seed.
        depths: Depths of the evaluation.
        probes: Probes that are measured in addition to the recipes' tasks.
        exits: Early-exit rules that are calibrated and timed on every arm.
        exit_sequences: Sequences for each half of the early-exit benchmark: calibration, and timing.
        arms: The experiments, by name.
        claims: The paper's statements, by name.
        profiles: The same study at another scale, by name.
        reported: The paper's tables, as printed.
    """

    study: Literal[1]
    title: str
    paper: str | None = None
    description: str = ""
    seeds: Annotated[list[NonNegativeInt], MinLen(1)]
    depths: str
    probes: dict[str, Annotated[Spec, "probe"]] = field(default_factory=dict)
    exits: dict[str, Annotated[Spec, "exit"]] = field(default_factory=dict)
    exit_sequences: PositiveInt = 160
    arms: dict[str, Arm] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    profiles: dict[str, StudyScale] = field(default_factory=dict)
    reported: dict[str, Any] = field(default_factory=dict)
