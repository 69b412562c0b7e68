"""Judgement of a paper's claims by measurements. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from loopkit.recipe.depths import parse_depths
from loopkit.studies.format import ArmFigure, Claim

Rows = Sequence[Mapping[str, Any]]
"""The ``depths`` of one evaluation."""

ONE_SIDED = frozenset({"below", "above", "magnitude_below"})
"""Relations of one figure to the bound; the others compare two figures."""

PLACES = {"first": slice(1), "last": slice(-1, None), "all": slice(None), "inner": slice(-1)}
"""Names of depths, and the rows that they select."""

FROM_ABOVE = frozenset({"below", "times_at_most", "equal_within", "differs_below", "magnitude_below"})
"""Relations for which the largest of several values is the strictest test."""


@dataclass(frozen=True)
class ClaimVerdict:
    """The verdict on one claim.

    Args:
        name: The claim's name.
        claim: The claim.
        measured: The value compared with the bound; None if a figure was not measured.
        left: Figure of the left side, mean over seeds.
        right: Figure of the right side, mean over seeds; None if there is no right side.
        seeds: The value of each seed.
        holds: Whether the claim holds; None if it was not judged.
        why: Why the claim was not judged.
    """

    name: str
    claim: Claim
    measured: float | None = None
    left: float | None = None
    right: float | None = None
    seeds: tuple[float, ...] = ()
    holds: bool | None = None
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain data; a value that was not measured is absent."""
        figures = {"measured": self.measured, "left": self.left, "right": self.right, "holds": self.holds}
        measured = {key: value for key, value in figures.items() if value is not None}
        claim = self.claim
        fixed = {"says": claim.says, "must": claim.must, "relation": claim.relation, "bound": claim.bound}
        fixed |= {"somewhere": True} if claim.somewhere else {}
        return (
            fixed
            | {"paper": claim.paper}
            | measured
            | {"seeds": list(self.seeds)}
            | ({"why": self.why} if self.why else {})
        )


class NotMeasured(LookupError):
    """A figure that an evaluation does not have."""


def judge(name: str, claim: Claim, measured: Mapping[str, Mapping[int, Rows]]) -> ClaimVerdict:
    """Judge one claim by the measurements.

    Every seed gives a value; the mean over seeds is compared with the bound.

    Args:
        name: The claim's name.
        claim: The claim.
        measured: Rows of each arm's evaluation, by seed.
    """
    seeds = sorted(measured.get(claim.left.arm, {}))
    if claim.right is not None:
        seeds = [seed for seed in seeds if seed in measured.get(claim.right.arm, {})]
    if not seeds:
        return ClaimVerdict(name, claim, why="not run")
    strictest = max if (claim.relation in FROM_ABOVE) != claim.somewhere else min
    try:
        pairs = [_sides(claim, measured, seed) for seed in seeds]
        values = tuple(
            strictest(compare(claim.relation, left, right) for left, right in _pair_values(*pair)) for pair in pairs
        )
    except NotMeasured as error:
        return ClaimVerdict(name, claim, why=str(error))
    value = fmean(values)
    left, right = (
        fmean(strictest(side) for side in sides) if all(sides) else None for sides in zip(*pairs, strict=True)
    )
    return ClaimVerdict(name, claim, value, left, right, values, holds(claim.relation, value, claim.bound))


def compare(relation: str, left: float, right: float | None) -> float:
    """Compute the value that is compared with the bound.

    Raises:
        NotMeasured: If it is a ratio to zero.
    """
    if relation in ("below", "above"):
        return left
    if relation == "magnitude_below":
        return abs(left)
    assert right is not None
    if right == 0 and relation != "differs_below":
        raise NotMeasured("the right side is 0, so the ratio is undefined")
    if relation in ("times_at_least", "times_at_most"):
        return left / right
    if relation == "equal_within":
        return abs(left / right - 1)
    return 1 - left / right if relation == "lower_by" else abs(left - right)


def holds(relation: str, value: float, bound: float) -> bool:
    """Check whether a value meets its bound."""
    if relation in ("below", "differs_below", "magnitude_below"):
        return value < bound
    if relation in ("times_at_most", "equal_within"):
        return value <= bound
    return value > bound if relation == "above" else value >= bound


def _sides(claim: Claim, measured: Mapping[str, Mapping[int, Rows]], seed: int) -> tuple[list[float], list[float]]:
    left = arm_values(claim.left, measured[claim.left.arm][seed])
    return left, [] if claim.right is None else arm_values(claim.right, measured[claim.right.arm][seed])


def _pair_values(left: list[float], right: list[float]) -> list[tuple[float, float | None]]:
    """Pair left values with right values; a single right value pairs with every left value."""
    if not right:
        return [(value, None) for value in left]
    return list(zip(left, right if len(right) == len(left) else right * len(left), strict=True))


def arm_values(quantity: ArmFigure, rows: Rows) -> list[float]:
    """Return the values of a figure at its depths.

    Raises:
        NotMeasured: If the figure is missing from a row or is not finite.
    """
    values = []
    for row in _rows_at(quantity.depth, sorted(rows, key=lambda row: row["depth"])):
        value: Any = row
        for part in quantity.figure.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is None:
            why = "is not finite" if quantity.figure in row.get("not_finite", ()) else "was not measured"
            raise NotMeasured(f"{quantity.figure} of {quantity.arm} at depth {row['depth']} {why}")
        values.append(float(value))
    if not values:
        raise NotMeasured(f"{quantity.arm} was not evaluated at depth {quantity.depth}")
    return values


def _rows_at(depth: int | str, ordered: Rows) -> Rows:
    if depth in PLACES:
        return ordered[PLACES[str(depth)]]
    depths = frozenset(parse_depths(str(depth)))
    return [row for row in ordered if row["depth"] in depths]
