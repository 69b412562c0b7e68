from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from loopkit.report import write_report
from loopkit.runs import RunFolder

MadeBy: dict[str, Any] = {
    "recipe": "wikitext_44m_raw",
    "recipe_hash": "0123abcd",
    "packages": {"torch": "2.13.0"},
    "machine": {"cores": 2},
    "components": {"readout raw": "loopkit 0.1.0"},
    "sessions": [{"command": ["loopkit", "train", "wikitext_44m_raw"], "status": "finished"}],
}


def test_tells_what_the_run_is_and_measured(
    make_run: Callable[..., RunFolder], sample: Callable[..., Any], curves: Callable[..., Any]
) -> None:
    folder = make_run("a_run", [sample(), sample(split="test", step=600)], curves(600), **MadeBy)
    written = write_report(folder)
    assert written == ["report.md", "plots/training.svg", "plots/depths-test.svg", "plots/depths-validation.svg"]
    assert all((folder.path / name).is_file() for name in written)
    text = folder.report.read_text()
    assert "`loopkit train wikitext_44m_raw`" in text
    assert "| optimizer steps | 600 |" in text
    assert "16,384 tokens = 7,931 words = 43,210 bytes" in text
    assert "| **4** | 3.3000 |" in text
    assert "| torch | 2.13.0 |" in text


def test_every_table_is_well_formed(
    make_run: Callable[..., RunFolder], sample: Callable[..., Any], curves: Callable[..., Any]
) -> None:
    folder = make_run("a_run", [sample()], curves(20), **MadeBy)
    write_report(folder)
    for table in folder.report.read_text().split("\n\n"):
        if table.startswith("|"):
            assert len({line.count("|") for line in table.splitlines()}) == 1


def test_a_run_that_was_never_evaluated_still_has_a_report(
    make_run: Callable[..., RunFolder], curves: Callable[..., Any]
) -> None:
    folder = make_run("a_run", [], curves(3))
    assert write_report(folder) == ["report.md", "plots/training.svg"]
    assert "Evaluation" not in folder.report.read_text()


def test_a_damaged_metrics_file_is_named(make_run: Callable[..., RunFolder]) -> None:
    folder = make_run("a_run", [], [])
    folder.metrics.write_text("{\n")
    with pytest.raises(ValueError, match=r"metrics\.jsonl:1"):
        write_report(folder)
