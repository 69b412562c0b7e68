"""The pages of a run: report and model card."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest

from loopkit.report import write_report
from loopkit.runs import RunFolder

PROVENANCE: dict[str, Any] = {
    "recipe": "wikitext_44m_raw",
    "recipe_hash": "0123abcd",
    "packages": {"torch": "2.13.0"},
    "machine": {"cores": 2},
    "components": {"readout raw": "loopkit 0.1.0"},
    "sessions": [{"command": ["loopkit", "train", "wikitext_44m_raw"], "status": "finished"}],
}


def test_report_has_command_training_and_evaluation(
    make_run: Callable[..., RunFolder], sample: Callable[..., Any], curves: Callable[..., Any]
) -> None:
    folder = make_run("a_run", [sample(), sample(split="test", step=600)], curves(600), **PROVENANCE)
    written = write_report(folder)
    plots = ["plots/training.svg", "plots/depths-test.svg", "plots/depths-validation.svg"]
    assert written == ["report.md", *plots, "report.html", "model_card.md"]
    assert all((folder.path / name).is_file() for name in written)
    text = folder.report.read_text()
    assert "`loopkit train wikitext_44m_raw`" in text
    assert "| optimizer steps | 600 |" in text
    assert "16,384 tokens = 7,931 words = 43,210 bytes" in text
    assert "| **4** | 3.3000 |" in text
    assert "| torch | 2.13.0 |" in text


def test_tables_are_well_formed(
    make_run: Callable[..., RunFolder], sample: Callable[..., Any], curves: Callable[..., Any]
) -> None:
    folder = make_run("a_run", [sample()], curves(20), **PROVENANCE)
    write_report(folder)
    for table in folder.report.read_text().split("\n\n"):
        if table.startswith("|"):
            assert len({line.count("|") for line in table.splitlines()}) == 1


def test_unevaluated_run_has_a_report(make_run: Callable[..., RunFolder], curves: Callable[..., Any]) -> None:
    folder = make_run("a_run", [], curves(3))
    assert write_report(folder) == ["report.md", "plots/training.svg", "report.html", "model_card.md"]
    assert "Evaluation" not in folder.report.read_text()


def test_damaged_metrics_file_is_named(make_run: Callable[..., RunFolder]) -> None:
    folder = make_run("a_run", [], [])
    folder.metrics.write_text("{\n")
    with pytest.raises(ValueError, match=r"metrics\.jsonl:1"):
        write_report(folder)


def test_html_is_self_contained(
    make_run: Callable[..., RunFolder], sample: Callable[..., Any], curves: Callable[..., Any]
) -> None:
    folder = make_run("a_run", [sample()], curves(20), **PROVENANCE)
    write_report(folder)
    text = folder.report_html.read_text()
    assert text.count('<svg role="img" aria-label="') == text.count("</svg>") == 2
    external = re.findall(r"<(?:img|script|link|iframe|object)\b|@import|url\((?!#)", text)
    assert external == []
    parser = _Balanced()
    parser.feed(text)
    assert parser.open == []
    assert "<strong>4</strong>" in text
    assert "<code>loopkit train wikitext_44m_raw</code>" in text


def test_html_is_escaped(
    make_run: Callable[..., RunFolder], sample: Callable[..., Any], curves: Callable[..., Any]
) -> None:
    folder = make_run("a_run", [sample(slice="<script>alert(1)</script>")], curves(2), **PROVENANCE)
    write_report(folder)
    assert "<script" not in folder.report_html.read_text()


def test_model_card_has_recipe_and_evaluation(
    make_run: Callable[..., RunFolder], sample: Callable[..., Any], curves: Callable[..., Any]
) -> None:
    folder = make_run("a_run", [sample()], curves(600), parameters={"unique": 574464}, **PROVENANCE)
    write_report(folder)
    card = folder.model_card.read_text()
    assert "| readout | raw |" in card
    assert "| loops in training | fixed (loops 4) |" in card
    assert "| parameters | 574,464 |" in card
    assert "| **4** | 3.3000 |" in card
    assert 'loopkit.load("a_run")' in card


def test_model_card_of_unevaluated_run(make_run: Callable[..., RunFolder], curves: Callable[..., Any]) -> None:
    folder = make_run("a_run", [], curves(2))
    write_report(folder)
    assert "The model has not been evaluated." in folder.model_card.read_text()


class _Balanced(HTMLParser):
    """Collects elements that were opened and not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
