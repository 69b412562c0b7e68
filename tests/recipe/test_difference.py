"""The keys in which recipes differ."""

from __future__ import annotations

import pytest

from loopkit.recipe.difference import ABSENT, differences, experiment_differences


def test_equal_values_have_no_difference() -> None:
    assert differences({"a": {"b": 1}}, {"a": {"b": 1}}) == []


def test_differences_name_the_innermost_key() -> None:
    (change,) = differences({"train": {"lr": {"type": "constant", "peak": 1}}}, {"train": {"lr": {"type": "constant"}}})
    assert (change.key, change.values) == ("train.lr.peak", (1, ABSENT))
    assert change.format_values() == ("1", "(absent)")


@pytest.mark.parametrize("values", [({"type": "a", "x": 1}, {"type": "b", "x": 2}), ({"x": 1}, {"type": "b"})])
def test_another_type_is_one_difference(values: tuple[dict[str, object], dict[str, object]]) -> None:
    (change,) = differences({"gate": values[0]}, {"gate": values[1]})
    assert (change.key, change.values) == ("gate", values)
    assert change.format_values()[1] == "'b'"


def test_experiments_do_not_differ_in_descriptions() -> None:
    first, second = {"seed": 1, "description": "a"}, {"seed": 2, "description": "b", "plugins": ["x.py"]}
    assert [change.key for change in experiment_differences(first, second)] == ["seed"]
