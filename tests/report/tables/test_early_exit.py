"""The table of an early-exit benchmark."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest

from loopkit.report import console
from loopkit.report.tables.early_exit import exit_report
from tests.report.benchmark import benchmark


def render(result: dict[str, Any]) -> str:
    file = io.StringIO()
    console(file).print(exit_report(result))
    return file.getvalue()


def test_every_depth_and_exit_has_a_row() -> None:
    text = render(benchmark())
    rows = re.findall(r"^(\d loops?|logit_margin) +([\d.]+) +([\d.]+) +([+-][\d.]+%) +(\S+) +([\d.]+x)", text, re.M)
    assert rows == [
        ("1 loop", "1.00", "4.680", "+2.9%", "80k", "4.00x"),
        ("2 loops", "2.00", "4.550", "+0.0%", "40k", "2.00x"),
        ("3 loops", "3.00", "4.540", "-0.2%", "26.7k", "1.33x"),
        ("4 loops", "4.00", "4.550", "+0.0%", "20k", "1.00x"),
        ("logit_margin", "1.76", "4.600", "+1.1%", "41.8k", "2.09x"),
    ]
    assert re.search(r"logit_margin +3\.215 +1\.79 +77 +40 60 30 30", text)


def test_conditions_are_printed() -> None:
    text = re.sub(r"\s+", " ", render(benchmark()))
    assert "validation, sequences 161 to 320, of 256; 40,960 tokens scored" in text
    assert "validation, sequences 1 to 160, of 256" in text
    assert "fp32, batch 8, no cache" in text
    assert "A Processor @ 2.00GHz, 2 cores, 2 threads" in text
    assert "median of 3 interleaved runs" in text
    assert "at most 1 + 0.01 times that of all loops" in text


@pytest.mark.parametrize("depths", [2, 4, 32])
def test_table_fits_eighty_columns(depths: int) -> None:
    exits = {"logit_margin_at_another_threshold": (123456.0, 1.76, 2.09), "kl": (4.6, 3.0, 1.0)}
    result = benchmark([4.0 + k for k in range(depths)], exits, notes=["a note " * 30])
    for row in result["exits"].values():
        row["exits_by_loop"] = [k % 7 for k in range(depths)]
    text = render(result)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text


def test_many_loops_list_the_largest_counts() -> None:
    result = benchmark([4.0] * 8)
    result["exits"]["logit_margin"]["exits_by_loop"] = [0, 100, 0, 40, 1, 0, 0, 19]
    assert "100 at 2 40 at 4 19 at 8 ..." in render(result)


def test_missing_threshold_and_perplexity() -> None:
    result = benchmark((1e9, 4.5))
    del result["exits"]["logit_margin"]["threshold"]
    text = render(result)
    assert re.search(r"logit_margin +never", text)
    assert "x 2.2e+08" in text
    del result["frontier"][0]["token_ppl"]
    assert re.search(r"1 loop +1\.00 +- +- +80k", render(result))


def test_without_exits_there_is_no_calibration() -> None:
    text = render(benchmark(exits={}))
    assert "calibrat" not in text
    assert "threshold" not in text
