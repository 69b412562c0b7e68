"""Claims held against made-up measurements, each relation on both sides of its bound."""

from __future__ import annotations

import pytest

from loopkit.studies.format import ArmFigure, Claim
from loopkit.studies.judge import judge


def rows(*values: float, figure: str = "x") -> list[dict]:
    return [{"depth": depth, figure: value, "norm": {"mean": value}} for depth, value in enumerate(values, 1)]


def verdict(relation: str, bound: float, left: list[dict], right: list[dict] | None = None, **left_options):
    claim = Claim(
        says="it is so.",
        left=ArmFigure(arm="a", figure=left_options.pop("figure", "x"), **left_options),
        right=None if right is None else ArmFigure(arm="b", figure="x"),
        relation=relation,
        bound=bound,
    )
    measured = {"a": {1: left}} | ({} if right is None else {"b": {1: right}})
    return judge("c", claim, measured)


@pytest.mark.parametrize(
    ("relation", "bound", "left", "right", "value", "holds"),
    [
        ("below", 1.0, 0.5, None, 0.5, True),
        ("below", 1.0, 1.0, None, 1.0, False),
        ("above", 1.0, 2.0, None, 2.0, True),
        ("above", 1.0, 1.0, None, 1.0, False),
        ("magnitude_below", 1.0, -0.5, None, 0.5, True),
        ("magnitude_below", 1.0, -2.0, None, 2.0, False),
        ("times_at_least", 10, 100.0, 10.0, 10.0, True),
        ("times_at_least", 10, 99.0, 10.0, 9.9, False),
        ("times_at_most", 2, 20.0, 10.0, 2.0, True),
        ("equal_within", 0.03, 1.02, 1.0, 0.02, True),
        ("equal_within", 0.03, 0.9, 1.0, 0.1, False),
        ("lower_by", 0.02, 0.97, 1.0, 0.03, True),
        ("lower_by", 0.02, 1.01, 1.0, -0.01, False),
        ("differs_below", 0.5, 1.0, 1.4, 0.4, True),
    ],
)
def test_relations(relation, bound, left, right, value, holds) -> None:
    outcome = verdict(relation, bound, rows(left), None if right is None else rows(right))
    assert outcome.measured == pytest.approx(value)
    assert outcome.holds is holds


def test_over_several_depths_the_hardest_value_counts() -> None:
    assert verdict("below", 1.0, rows(0.1, 5.0, 0.2), depth="all").measured == 5.0
    assert verdict("above", 1.0, rows(3.0, 2.0, 0.2), depth="inner").measured == 2.0
    assert verdict("magnitude_below", 1.0, rows(0.1, -5.0, 0.2), depth="all").measured == 5.0
    assert verdict("below", 1.0, rows(0.1, 5.0), depth=1).measured == 0.1
    assert verdict("below", 1.0, rows(0.1, 5.0), depth="last").measured == 5.0


def test_depths_by_name_of_their_numbers() -> None:
    assert verdict("above", 1.0, rows(0.1, 3.0, 2.0, 9.0, 0.5), depth="2-3,4").measured == 2.0
    assert verdict("above", 1.0, rows(0.1, 3.0), depth="2").measured == 3.0
    assert verdict("above", 1.0, rows(0.1), depth="2-3").why == "a was not evaluated at depth 2-3"


def test_somewhere_takes_the_easiest_value() -> None:
    for relation, easiest in (("below", 0.1), ("above", 5.0)):
        claim = Claim(
            says="it is so.",
            left=ArmFigure(arm="a", figure="x", depth="all"),
            relation=relation,  # type: ignore[arg-type]
            bound=1.0,
            somewhere=True,
        )
        outcome = judge("c", claim, {"a": {1: rows(2.0, 0.1, 5.0)}})
        assert (outcome.measured, outcome.holds) == (easiest, True)


@pytest.mark.parametrize("relation", ["times_at_least", "times_at_most", "equal_within", "lower_by"])
def test_a_ratio_to_zero_is_not_judged(relation: str) -> None:
    outcome = verdict(relation, 0.5, rows(1.0), rows(0.0))
    assert outcome.holds is None
    assert "is 0" in outcome.why
    assert verdict("differs_below", 0.5, rows(0.25), rows(0.0)).measured == 0.25


def test_dotted_figures_and_seeds() -> None:
    claim = Claim(says="it is so.", left=ArmFigure(arm="a", figure="norm.mean"), relation="below", bound=3.0)
    outcome = judge("c", claim, {"a": {1: rows(2.0), 2: rows(4.0)}})
    assert outcome.measured == 3.0
    assert outcome.seeds == (2.0, 4.0)
    assert outcome.holds is False


def test_what_was_not_measured_is_not_judged() -> None:
    missing = verdict("below", 1.0, rows(1.0), figure="y")
    assert missing.holds is None
    assert "y of a at depth 1 was not measured" in missing.why
    assert "holds" not in missing.to_json()
    claim = Claim(says="it is so.", left=ArmFigure(arm="z", figure="x"), relation="below", bound=1.0)
    assert judge("c", claim, {}).why == "not run"
