"""The frontier plot is well-formed and names everything that it does not draw."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from loopkit.report.plots.frontier import differences, draw_frontier, plot_frontier
from loopkit.report.plots.style import style
from tests.report.benchmark import benchmark


def test_svg_is_reproducible_and_describes_values(tmp_path: Path) -> None:
    runs = {"a": benchmark(), "b & c": benchmark((5.0, 4.9))}
    first = plot_frontier(runs, tmp_path / "a.svg").read_text()
    assert first == plot_frontier(runs, tmp_path / "b.svg").read_text()
    ElementTree.fromstring(first)
    assert "4.680 at 80k tokens/s with 1 loop" in first
    assert "4.600 at 41.8k tokens/s with logit_margin" in first


def test_depths_are_numbered_and_exits_hollow() -> None:
    with style():
        (panel,) = draw_frontier({"a": benchmark(), "b": benchmark((5.0, 4.9, 4.8, 4.7))}).axes
    fixed = [line for line in panel.lines if len(line.get_xdata()) == 4]  # type: ignore[arg-type]
    hollow = [line for line in panel.lines if len(line.get_xdata()) == 1]  # type: ignore[arg-type]
    assert [list(line.get_ydata()) for line in fixed] == [[4.68, 4.55, 4.54, 4.55], [5.0, 4.9, 4.8, 4.7]]
    assert list(fixed[0].get_xdata()) == pytest.approx([80_000, 40_000, 26_667, 20_000], rel=1e-4)
    assert len(hollow) == 2
    texts = [text.get_text() for text in panel.texts]
    assert texts == ["1", "2", "3", "4", "1.76"] * 2
    assert panel.get_ylabel() == "perplexity (per token)"
    assert panel.get_xlabel().startswith(
        "tokens per second, measured: fp32, batch 8, 160 sequences of 256, cpu (2 cores)"
    )


def test_several_exits_are_named() -> None:
    exits = {"gate_cdf": (4.6, 2.0, 1.5), "kl": (4.56, 3.0, 1.2)}
    with style():
        figure = draw_frontier({"a": benchmark(exits=exits)})
    assert {"gate_cdf 2.00", "kl 3.00"} <= {text.get_text() for text in figure.axes[0].texts}


def test_high_perplexities_are_named_and_not_drawn() -> None:
    with style():
        figure = draw_frontier({"good": benchmark(), "terminal": benchmark((4.7e12, 9e6, 24.0, 4.71))})
    labels = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert "terminal\n(not drawn: 1, 2, 3; perplexity 24.0 or more)" in labels
    assert "good" in labels
    assert figure.axes[0].get_ylim()[1] < 6
    assert list(figure.axes[0].lines[2].get_ydata()) == [4.71]


def test_exit_with_high_perplexity_is_named() -> None:
    with style():
        figure = draw_frontier({"a": benchmark(exits={"kl": (99.0, 1.0, 4.0)})})
    assert "a\n(not drawn: kl; perplexity 99.0 or more)" in [text.get_text() for text in figure.legends[0].get_texts()]


def test_non_finite_perplexity_is_named() -> None:
    result = benchmark()
    del result["frontier"][0]["token_ppl"]
    with style():
        figure = draw_frontier({"a": result})
        labels = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
        assert "a\n(not drawn: 1; perplexity not finite)" in labels
        for row in [*result["frontier"], *result["exits"].values()]:
            row.pop("token_ppl", None)
        assert "no depth has a finite" in draw_frontier({"a": result}).axes[0].texts[0].get_text()


def test_differing_conditions_are_named() -> None:
    other_device = benchmark(device="a GPU", timed=benchmark()["timed"] | {"sequences": 32})
    assert differences([benchmark(), benchmark()]) == []
    assert differences([benchmark(), other_device]) == ["device", "timed slice"]
    with style():
        panel = draw_frontier({"a": benchmark(), "b": other_device}).axes[0]
    assert "not comparable, device, timed slice differ" in panel.get_xlabel()


def test_no_benchmark_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no benchmark"):
        plot_frontier({}, tmp_path / "a.svg")


def test_without_exits_only_depths_are_drawn() -> None:
    with style():
        figure = draw_frontier({"a": benchmark(exits={})})
    assert [text.get_text() for legend in figure.legends for text in legend.get_texts()] == ["a"]


def test_needs_no_torch() -> None:
    code = (
        "import sys, loopkit.report.plots.frontier, loopkit.report.tables.early_exit; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
