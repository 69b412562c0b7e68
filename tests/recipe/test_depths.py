from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopkit.recipe.depths import check_depths, format_depths, parse_depths


@pytest.mark.parametrize(
    ("text", "depths"),
    [
        ("1-8", [1, 2, 3, 4, 5, 6, 7, 8]),
        ("1,2,8", [1, 2, 8]),
        ("4", [4]),
        (" 1-2 , 8 ", [1, 2, 8]),
        ("8,1-2", [1, 2, 8]),
        ("3-3", [3]),
        ("010", [10]),
    ],
)
def test_reads_ranges_and_lists(text: str, depths: list[int]) -> None:
    assert parse_depths(text) == depths


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no depths given"),
        ("   ", "no depths given"),
        ("8-1", "runs backwards; write 1-8"),
        ("0", "depths start at 1"),
        ("0-4", "depth 0 runs no loop"),
        ("-3", "'-3' is not a depth or a range"),
        ("1-", "'1-' is not a depth or a range"),
        ("1..8", "'1..8' is not a depth or a range"),
        ("1-2-3", "is not a depth or a range"),
        ("a", "write a range such as 1-8"),
        ("1.5", "is not a depth or a range"),
        ("１", "is not a depth or a range"),
        ("1,,2", "an empty item"),
        ("1,", "an empty item"),
        ("1-4,2,3", "2, 3 named more than once"),
        ("1-1000000000", "more than 10,000 loops"),
    ],
)
def test_parse_reports_malformed_depths(text: str, says: str) -> None:
    with pytest.raises(ValueError, match="depths") as caught:
        parse_depths(text)
    assert says in str(caught.value)


@given(st.sets(st.integers(1, 300), min_size=1))
def test_format_is_the_inverse_of_parse(depths: set[int]) -> None:
    assert parse_depths(format_depths(list(depths))) == sorted(depths)


def test_format_writes_runs_as_ranges() -> None:
    assert format_depths([1, 2, 3, 8]) == "1-3,8"


@pytest.mark.parametrize(
    ("depths", "says"),
    [([], "no depths"), ([0, 1], "start at 1"), ([2, 2], "more than once"), ([4, 9, 10], "depth 9 exceeds")],
)
def test_depths_beyond_the_model_are_rejected(depths: list[int], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        check_depths(depths, 8)


def test_a_model_without_a_limit_runs_any_depth() -> None:
    check_depths([1, 1000], None)
