"""The frontier: well-formed, nothing drawn that misleads, nothing left out unsaid."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from loopkit.report.plots.frontier import differences, draw_frontier, plot_frontier
from loopkit.report.plots.style import style
from tests.report.benchmark import benchmark


def test_is_well_formed_the_same_each_time_and_says_its_figures(tmp_path: Path) -> None:
    runs = {"a": benchmark(), "b & c": benchmark((5.0, 4.9))}
    first = plot_frontier(runs, tmp_path / "a.svg").read_text()
    assert first == plot_frontier(runs, tmp_path / "b.svg").read_text()
    ElementTree.fromstring(first)
    assert "4.680 at 80k tokens/s with 1 loops" in first
    assert "4.600 at 41.8k tokens/s with logit_margin" in first


def test_draws_a_numbered_point_per_depth_and_a_hollow_one_per_exit() -> None:
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
        drawn = draw_frontier({"a": benchmark(exits=exits)})
    assert {"gate_cdf 2.00", "kl 3.00"} <= {text.get_text() for text in drawn.axes[0].texts}


def test_unusable_depths_are_named_and_not_drawn() -> None:
    with style():
        drawn = draw_frontier({"good": benchmark(), "terminal": benchmark((4.7e12, 9e6, 24.0, 4.71))})
    labels = [text.get_text() for legend in drawn.legends for text in legend.get_texts()]
    assert "terminal\n(off the top: 1, 2, 3; perplexity 24.0 or more)" in labels
    assert "good" in labels
    assert drawn.axes[0].get_ylim()[1] < 6
    assert list(drawn.axes[0].lines[2].get_ydata()) == [4.71]


def test_an_exit_off_the_top_is_named_too() -> None:
    with style():
        drawn = draw_frontier({"a": benchmark(exits={"kl": (99.0, 1.0, 4.0)})})
    assert "a\n(off the top: kl; perplexity 99.0 or more)" in [text.get_text() for text in drawn.legends[0].get_texts()]


def test_a_perplexity_that_is_not_finite_is_said() -> None:
    found = benchmark()
    del found["frontier"][0]["token_ppl"]
    with style():
        drawn = draw_frontier({"a": found})
        labels = [text.get_text() for legend in drawn.legends for text in legend.get_texts()]
        assert "a\n(off the top: 1; perplexity not finite)" in labels
        for row in [*found["frontier"], *found["exits"].values()]:
            row.pop("token_ppl", None)
        assert "no depth has a finite" in draw_frontier({"a": found}).axes[0].texts[0].get_text()


def test_runs_that_were_not_measured_alike_say_so() -> None:
    other = benchmark(device="a GPU", timed=benchmark()["timed"] | {"sequences": 32})
    assert differences([benchmark(), benchmark()]) == []
    assert differences([benchmark(), other]) == ["device", "timed slice"]
    with style():
        panel = draw_frontier({"a": benchmark(), "b": other}).axes[0]
    assert "not alike, device, timed slice differ" in panel.get_xlabel()


def test_nothing_to_draw_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no benchmark"):
        plot_frontier({}, tmp_path / "a.svg")


def test_without_exits_it_is_the_frontier_alone() -> None:
    with style():
        drawn = draw_frontier({"a": benchmark(exits={})})
    assert [text.get_text() for legend in drawn.legends for text in legend.get_texts()] == ["a"]


def test_needs_no_torch() -> None:
    code = (
        "import sys, loopkit.report.plots.frontier, loopkit.report.tables.early_exit; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
