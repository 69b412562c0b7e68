"""Plots are well-formed, self-contained, reproducible, and readable in light and dark mode."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from loopkit.report import training_curve
from loopkit.report.plots.curve import draw_curves, plot_curves
from loopkit.report.plots.depth import draw_depths, plot_depths
from loopkit.report.plots.style import _DARK, COLOURS, PAPER, loop_colours, style
from loopkit.report.plots.training import by_loop, draw_training, loop_counts, plot_training, smooth, spread
from loopkit.report.row import select_depths

Sample = Callable[..., dict[str, Any]]
Curves = Callable[..., list[dict[str, Any]]]


def test_svg_is_self_contained_and_reproducible(tmp_path: Path, sample: Sample) -> None:
    first = plot_depths(sample(), tmp_path / "a.svg").read_text()
    again = plot_depths(sample(), tmp_path / "b.svg").read_text()
    assert first == again
    ElementTree.fromstring(first)
    assert not re.search(r'(href|src)="(?!#)', first)
    assert "<dc:date>" not in first


def test_svg_has_a_text_alternative(tmp_path: Path, sample: Sample) -> None:
    text = plot_depths(sample(2), tmp_path / "a.svg").read_text()
    assert "Token perplexity by depth in loops: 36.6 at 1, 29.96 at 2" in text


def test_axes_have_units_and_shaded_trained_range(sample: Sample) -> None:
    with style():
        figure = draw_depths(sample(8, (2, 4)))
    above, below = figure.axes
    assert above.get_ylabel() == "perplexity (per token)"
    assert below.get_ylabel() == "state norm ‖s‖₂ per token"
    assert below.get_xlabel() == "depth (loops)"
    for panel in figure.axes:
        (shade,) = panel.patches
        assert (shade.get_x(), shade.get_x() + shade.get_width()) == (1.5, 4.5)  # type: ignore[attr-defined]
        assert "trained" in [text.get_text() for text in panel.texts]
    assert list(above.lines[0].get_xdata()) == list(range(1, 9))


def test_missing_norm_has_no_panel(sample: Sample) -> None:
    result = sample(3)
    for row in result["depths"]:
        del row["state_norm"]
    with style():
        assert len(draw_depths(result).axes) == 1


def test_depth_without_finite_perplexity_is_left_out(sample: Sample) -> None:
    result = sample(3)
    del result["depths"][2]["token_ppl"]
    with style():
        assert list(draw_depths(result).axes[0].lines[0].get_xdata()) == [1, 2]
        for row in result["depths"]:
            row.pop("token_ppl", None)
        assert "no depth has a finite" in draw_depths(result).axes[0].texts[0].get_text()


def test_wide_range_gets_logarithmic_axis(sample: Sample) -> None:
    with style():
        assert draw_depths(sample(8)).axes[0].get_yscale() == "linear"
        result = sample(8)
        result["depths"][7]["token_ppl"] = 1e9
        assert draw_depths(result).axes[0].get_yscale() == "log"


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    dark, light = sorted([luminance(first), luminance(second)])
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("background", [PAPER, _DARK[PAPER]])
def test_line_colours_have_contrast_in_both_modes(background: str) -> None:
    from matplotlib.colors import to_hex

    for colour in [*COLOURS, *map(to_hex, loop_colours(9))]:
        assert contrast(colour, background) >= 3, colour


def test_text_colours_have_contrast_in_both_modes() -> None:
    from loopkit.report.plots.style import INK, SOFT

    for ink in (INK, SOFT):
        assert contrast(ink, PAPER) >= 4.5
        assert contrast(_DARK[ink], _DARK[PAPER]) >= 4.5


def test_dark_mode_swaps_background_and_text(tmp_path: Path, sample: Sample) -> None:
    text = plot_depths(sample(), tmp_path / "a.svg").read_text()
    assert "@media (prefers-color-scheme: dark)" in text
    for light in _DARK:
        assert f'[style*="fill: {light}"]' in text
    # the rules match only if matplotlib writes colours in this form
    assert f"fill: {PAPER}" in text.split("</style>", 1)[1]


class TestTraining:
    def test_every_loop_and_histogram_are_drawn(self, curves: Curves) -> None:
        with style():
            figure = draw_training(curves(40, lambda step: 1 + step % 3), "a run")
        loss, norm, histogram = figure.axes
        assert len(loss.lines) == len(norm.lines) == 3
        assert loss.get_ylabel() == "cross-entropy (nats per token)"
        assert sum(bar.get_height() for bar in histogram.patches) == pytest.approx(100)  # type: ignore[attr-defined]

    def test_fixed_loops_have_no_histogram(self, curves: Curves) -> None:
        with style():
            figure = draw_training(curves(40), "a run")
        assert len(figure.axes) == 2
        assert "4 loops in every step" in figure.axes[0].get_title("left")

    def test_empty_metrics_are_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="no line yet"):
            plot_training([], tmp_path / "a.svg", "a run")

    def test_one_step_is_drawn(self, tmp_path: Path, curves: Curves) -> None:
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

    def test_select_depths_keeps_powers_of_two(self) -> None:
        assert select_depths([1, 2, 3, 4], 6) == [1, 2, 3, 4]
        assert select_depths(list(range(1, 13)), 6) == [1, 2, 4, 8, 12]
        assert select_depths(list(range(1, 13)), 6, always=[3]) == [1, 2, 3, 4, 8, 12]

    def test_spread_keeps_distance_and_order(self) -> None:
        moved = spread([0.5, 0.5, 0.1, 0.99], 0.1)
        assert moved[2] < moved[0] < moved[1] < moved[3]
        ordered = sorted(moved)
        assert min(b - a for a, b in pairwise(ordered)) >= 0.1 - 1e-9
        assert max(moved) <= 1
        assert spread([], 0.1) == []

    def test_loop_counts_cover_every_step(self, curves: Curves) -> None:
        assert loop_counts(curves(9, lambda step: 1 + step % 3)) == {1: 3, 2: 3, 3: 3}


class TestCurves:
    def test_curve_is_thinned_by_means(self, curves: Curves) -> None:
        lines = [line | {"loss": float(line["step"] % 5)} for line in curves(450, lambda step: 2 + step % 2)]
        curve = training_curve(lines)
        assert len(curve["step"]) == len(curve["loss"]) == 75
        assert curve["step"][0] == 3.5
        assert sum(curve["loss"]) / 75 == pytest.approx(2.0, abs=1e-4)
        assert curve["loops"] == {"2": 225, "3": 225}
        assert json.loads(json.dumps(curve)) == curve
        assert len(json.dumps(training_curve(curves(3000)))) < 2500

    def test_short_curve_is_unchanged(self, curves: Curves) -> None:
        assert training_curve(curves(3)) == {"step": [1, 2, 3], "loss": [3.0, 3.0, 3.0], "loops": {"4": 3}}
        assert training_curve([]) == {"step": [], "loss": [], "loops": {}}

    def test_every_seed_and_histogram_are_drawn(self) -> None:
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

    def test_fixed_loops_are_named_in_title(self, tmp_path: Path) -> None:
        curve = {"step": [1, 2], "loss": [3.0, -0.5], "loops": {"4": 2}}
        with style():
            (loss,) = draw_curves({"1": curve}, "an arm").axes
        assert loss.get_yscale() == "linear"
        assert "4 loops in every step" in loss.get_title("left")
        text = plot_curves({"1": curve}, tmp_path / "c.svg", "an arm").read_text()
        assert "Training loss by optimizer step, in nats per token: 3 to -0.5 with seed 1" in text


def test_accuracies_without_perplexity_have_one_panel(tmp_path: Path) -> None:
    rows = [{"depth": depth, "sums": {"accuracy": depth / 10, "unfinished": 0.0}} for depth in (1, 2, 4)]
    result = {"depths": rows, "dtype": "fp32", "split": "sums", "tasks": {"sums": {"problems": 20}}}
    with style():
        figure = draw_depths(result)
    assert [panel.get_ylabel() for panel in figure.axes] == ["accuracy (%)"]
    assert figure.axes[0].lines[0].get_ydata().tolist() == [10.0, 20.0, 40.0]
    text = plot_depths(result, tmp_path / "depths.svg").read_text()
    assert "Accuracy of sums by depth in loops: 0.1 at 1, 0.2 at 2, 0.4 at 4" in text
