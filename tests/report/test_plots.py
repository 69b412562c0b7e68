"""Plots: well-formed, self-contained, the same bytes again, and readable on light and dark paper."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from loopkit.report import plot_curves, plot_depths, plot_training, training_curve
from loopkit.report.plots.curve import draw_curves
from loopkit.report.plots.depth import draw_depths
from loopkit.report.plots.style import _DARK, COLOURS, PAPER, loop_colours, style
from loopkit.report.plots.training import by_loop, draw_training, loop_counts, shown_loops, smooth, spread

Sample = Callable[..., dict[str, Any]]
Curves = Callable[..., list[dict[str, Any]]]


def test_is_one_self_contained_file_the_same_each_time(tmp_path: Path, sample: Sample) -> None:
    first = plot_depths(sample(), tmp_path / "a.svg").read_text()
    again = plot_depths(sample(), tmp_path / "b.svg").read_text()
    assert first == again
    ElementTree.fromstring(first)
    assert not re.search(r'(href|src)="(?!#)', first)
    assert "<dc:date>" not in first


def test_says_what_it_shows_to_those_who_cannot_see_it(tmp_path: Path, sample: Sample) -> None:
    text = plot_depths(sample(2), tmp_path / "a.svg").read_text()
    assert "Token perplexity by depth in loops: 36.6 at 1, 29.96 at 2" in text


def test_axes_have_units_and_the_trained_range_is_shaded(sample: Sample) -> None:
    with style():
        drawn = draw_depths(sample(8, (2, 4)))
    above, below = drawn.axes
    assert above.get_ylabel() == "perplexity (per token)"
    assert below.get_ylabel() == "state norm ‖s‖₂ per token"
    assert below.get_xlabel() == "depth (loops)"
    for panel in drawn.axes:
        (shade,) = panel.patches
        assert (shade.get_x(), shade.get_x() + shade.get_width()) == (1.5, 4.5)  # type: ignore[attr-defined]
        assert "trained" in [text.get_text() for text in panel.texts]
    assert list(above.lines[0].get_xdata()) == list(range(1, 9))


def test_a_missing_norm_leaves_its_panel_out(sample: Sample) -> None:
    result = sample(3)
    for row in result["depths"]:
        del row["state_norm"]
    with style():
        assert len(draw_depths(result).axes) == 1


def test_a_depth_without_a_finite_perplexity_is_left_out(sample: Sample) -> None:
    result = sample(3)
    del result["depths"][2]["token_ppl"]
    with style():
        assert list(draw_depths(result).axes[0].lines[0].get_xdata()) == [1, 2]
        for row in result["depths"]:
            row.pop("token_ppl", None)
        assert "no depth has a finite" in draw_depths(result).axes[0].texts[0].get_text()


def test_a_wide_range_gets_a_logarithmic_axis(sample: Sample) -> None:
    with style():
        assert draw_depths(sample(8)).axes[0].get_yscale() == "linear"
        result = sample(8)
        result["depths"][7]["token_ppl"] = 1e9
        assert draw_depths(result).axes[0].get_yscale() == "log"


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted([luminance(one), luminance(other)])
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("paper", [PAPER, _DARK[PAPER]])
def test_every_line_stands_out_from_both_papers(paper: str) -> None:
    from matplotlib.colors import to_hex

    for colour in [*COLOURS, *map(to_hex, loop_colours(9))]:
        assert contrast(colour, paper) >= 3, colour


def test_every_text_stands_out_from_its_paper() -> None:
    from loopkit.report.plots.style import INK, SOFT

    for ink in (INK, SOFT):
        assert contrast(ink, PAPER) >= 4.5
        assert contrast(_DARK[ink], _DARK[PAPER]) >= 4.5


def test_a_dark_page_turns_paper_and_ink(tmp_path: Path, sample: Sample) -> None:
    text = plot_depths(sample(), tmp_path / "a.svg").read_text()
    assert "@media (prefers-color-scheme: dark)" in text
    for light in _DARK:
        assert f'[style*="fill: {light}"]' in text
    # the rules find what they are to change only if matplotlib writes colours as they expect
    assert f"fill: {PAPER}" in text.split("</style>", 1)[1]


class TestTraining:
    def test_draws_every_loop_and_the_histogram(self, curves: Curves) -> None:
        with style():
            drawn = draw_training(curves(40, lambda step: 1 + step % 3), "a run")
        loss, norm, histogram = drawn.axes
        assert len(loss.lines) == len(norm.lines) == 3
        assert loss.get_ylabel() == "cross-entropy (nats per token)"
        assert sum(bar.get_height() for bar in histogram.patches) == pytest.approx(100)  # type: ignore[attr-defined]

    def test_a_fixed_number_of_loops_needs_no_histogram(self, curves: Curves) -> None:
        with style():
            drawn = draw_training(curves(40), "a run")
        assert len(drawn.axes) == 2
        assert "4 loops in every step" in drawn.axes[0].get_title("left")

    def test_nothing_to_draw_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="no line yet"):
            plot_training([], tmp_path / "a.svg", "a run")

    def test_one_step_is_enough(self, tmp_path: Path, curves: Curves) -> None:
        assert plot_training(curves(1), tmp_path / "a.svg", "a run").is_file()

    def test_loops_without_a_value_are_left_out(self) -> None:
        lines = [
            {"step": 1, "ce": [None, 2.0]},
            {"step": 2, "ce": [None, None, 1.0]},
            {"step": 3, "ce": [float("nan")]},
        ]
        assert by_loop(lines, "ce") == {2: [(1, 2.0)], 3: [(2, 1.0)]}

    def test_smoothing_keeps_every_value(self) -> None:
        curve = [(float(i), float(i % 7)) for i in range(1000)]
        short = smooth(curve, 100)
        assert len(short) == 100
        assert sum(y for _, y in short) / 100 == pytest.approx(sum(y for _, y in curve) / 1000)
        assert smooth([], 100) == []

    def test_of_many_loops_only_some_are_drawn(self) -> None:
        assert shown_loops([1, 2, 3, 4]) == [1, 2, 3, 4]
        assert shown_loops(list(range(1, 13))) == [1, 2, 4, 8, 12]

    def test_labels_keep_their_distance_and_their_order(self) -> None:
        moved = spread([0.5, 0.5, 0.1, 0.99], 0.1)
        assert moved[2] < moved[0] < moved[1] < moved[3]
        ordered = sorted(moved)
        assert min(b - a for a, b in pairwise(ordered)) >= 0.1 - 1e-9
        assert max(moved) <= 1
        assert spread([], 0.1) == []

    def test_counts_the_loops_of_every_step(self, curves: Curves) -> None:
        assert loop_counts(curves(9, lambda step: 1 + step % 3)) == {1: 3, 2: 3, 3: 3}


class TestCurves:
    def test_is_thinned_by_means_that_keep_every_step(self, curves: Curves) -> None:
        lines = [line | {"loss": float(line["step"] % 5)} for line in curves(450, lambda step: 2 + step % 2)]
        curve = training_curve(lines)
        assert len(curve["step"]) == len(curve["loss"]) == 75
        assert curve["step"][0] == 3.5
        assert sum(curve["loss"]) / 75 == pytest.approx(2.0, abs=1e-4)
        assert curve["loops"] == {"2": 225, "3": 225}
        assert json.loads(json.dumps(curve)) == curve
        assert len(json.dumps(training_curve(curves(3000)))) < 2500

    def test_a_short_run_keeps_its_steps(self, curves: Curves) -> None:
        assert training_curve(curves(3)) == {"step": [1, 2, 3], "loss": [3.0, 3.0, 3.0], "loops": {"4": 3}}
        assert training_curve([]) == {"step": [], "loss": [], "loops": {}}

    def test_draws_every_seed_and_a_histogram_where_loops_differ(self) -> None:
        curves = {
            "1": {"step": [1, 2], "loss": [90.0, 0.5], "loops": {"2": 1, "4": 1}},
            "2": {"step": [1, 2], "loss": [80.0, 0.6], "loops": {"4": 2}},
        }
        with style():
            loss, loops = draw_curves(curves, "an arm").axes
        assert (loss.get_xlabel(), loss.get_ylabel()) == ("optimizer step", "training loss (nats per token)")
        assert loss.get_yscale() == "log"
        assert [line.get_label() for line in loss.lines] == ["seed 1", "seed 2"]
        assert [bar.get_height() for bar in loops.patches] == [25.0, 75.0]  # type: ignore[attr-defined]
        assert len({str(line.get_linestyle()) for line in loss.lines}) == 2

    def test_a_fixed_number_of_loops_is_said_instead(self, tmp_path: Path) -> None:
        curve = {"step": [1, 2], "loss": [3.0, -0.5], "loops": {"4": 2}}
        with style():
            (loss,) = draw_curves({"1": curve}, "an arm").axes
        assert loss.get_yscale() == "linear"
        assert "4 loops in every step" in loss.get_title("left")
        text = plot_curves({"1": curve}, tmp_path / "c.svg", "an arm").read_text()
        assert "Training loss by optimizer step, in nats per token: 3 to -0.5 with seed 1" in text


def test_accuracies_have_a_panel_of_their_own_and_perplexity_none_where_none_was_measured(tmp_path: Path) -> None:
    rows = [{"depth": depth, "sums": {"accuracy": depth / 10, "unfinished": 0.0}} for depth in (1, 2, 4)]
    result = {"depths": rows, "dtype": "fp32", "split": "sums", "tasks": {"sums": {"problems": 20}}}
    with style():
        drawn = draw_depths(result)
    assert [panel.get_ylabel() for panel in drawn.axes] == ["accuracy (%)"]
    assert drawn.axes[0].lines[0].get_ydata().tolist() == [10.0, 20.0, 40.0]
    text = plot_depths(result, tmp_path / "depths.svg").read_text()
    assert "Accuracy of sums by depth in loops: 0.1 at 1, 0.2 at 2, 0.4 at 4" in text
