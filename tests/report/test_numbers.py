from __future__ import annotations

import math

import pytest

from loopkit.report.numbers import (
    format_amount,
    format_amounts,
    format_count,
    format_losses,
    format_value,
    format_values,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0"),
        (27.1126, "27.11"),
        (448.12, "448.1"),
        (13069.4, "13,069"),
        (-0.5, "-0.5000"),
        (1.1e9, "1.10e+09"),
        (5e-9, "5.00e-09"),
        (math.inf, "not finite"),
        (math.nan, "not finite"),
    ],
)
def test_number_has_four_digits(value: float | None, text: str) -> None:
    assert format_value(value) == text


def test_column_shares_decimals_if_sizes_allow() -> None:
    assert format_values([27.11, 448.123, None]) == ["27.11", "448.12", "-"]
    assert format_values([5.14, 1.1e9]) == ["5.140", "1.10e+09"]
    assert format_values([0.0, 12.0]) == ["0.00", "12.00"]
    assert format_values([None, None]) == ["-", "-"]
    assert format_values([math.inf, 2.0]) == ["not finite", "2.000"]


def test_losses_have_four_decimals() -> None:
    assert format_losses([3.2, -0.00002, 1e6, math.nan, None]) == ["3.2000", "-0.0000", "1.00e+06", "not finite", "-"]


def test_large_amounts_have_a_prefix() -> None:
    assert [format_amount(value) for value in (999, 16384, 1.65e9, 5e18, None)] == ["999", "16.4k", "1.65G", "5E", "-"]
    assert format_amounts([20.0, None]) == ["20", "-"]
    assert format_count(1234567) == "1,234,567"
    assert format_count(None) == "-"
