"""Tables, plots and pages handle metrics that are infinite, NaN, or at the limits of a float.

An evaluation of hours must not be lost because a value cannot be printed, drawn or written.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from docs.site.gallery.results import depths_table
from docs.site.gallery.small_plot import depth_line
from loopkit.evaluation.result import Conditions, ModelSource, Result, build_row
from loopkit.report import compare, comparison_report, depth_report, read_record, write_comparison, write_report
from loopkit.report.plots.depth import plot_depths
from loopkit.report.plots.frontier import plot_frontier
from loopkit.report.plots.study import plot_study
from loopkit.report.tables.early_exit import exit_report
from loopkit.report.tables.study import arms_markdown
from loopkit.report.tables.sweep import sweep_markdown, sweep_report
from loopkit.runs import RunFolder
from tests.report.benchmark import benchmark
from tests.report.conftest import evaluation, metrics

NAN, INF = float("nan"), float("inf")


def every(value: float) -> Callable[[int, float], float]:
    return lambda depth, measured: value


HOSTILE: dict[str, Callable[[int, float], float]] = {
    "all not a number": every(NAN),
    "all infinite": every(INF),
    "from depth 3": lambda depth, measured: measured if depth < 3 else NAN,
    "at depth 1": lambda depth, measured: measured if depth > 1 else INF,
    "huge": lambda depth, measured: measured * 10.0 ** (30 * min(depth, 9)),
    "the largest": every(1.7e308),
    "the smallest": every(5e-324),
    "zero": every(0.0),
    "negative": lambda depth, measured: -measured,
}


def hostile(change: Callable[[int, float], float], depths: int) -> dict[str, Any]:
    """Build the JSON of an evaluation with changed metrics, as ``loopkit eval`` would write it."""

    def changed(depth: int, value: Any) -> Any:
        if isinstance(value, Mapping):
            # part of a distribution may be finite: the mean of large numbers overflows before the median
            return {name: value if name == "median" else changed(depth, value) for name, value in value.items()}
        return change(depth, value)

    result = evaluation(4)
    rows = []
    for row in [result["depths"][k % 4] | {"depth": k + 1} for k in range(depths)]:
        metrics = {name: changed(row["depth"], row[name]) for name in row if name not in ("depth", "trained")}
        rows.append(build_row(row["depth"], None, metrics) | {"trained": row["trained"]})
    return json.loads(json.dumps(result | {"depths": rows}, allow_nan=False))


def text(shown: RenderableType) -> str:
    file = io.StringIO()
    Console(file=file, width=80).print(shown)
    return file.getvalue()


DRAWN = pytest.mark.parametrize("kind", ["all not a number", "from depth 3", "the largest", "zero"])


@pytest.mark.parametrize("depths", [1, 200])
@pytest.mark.parametrize("kind", HOSTILE)
def test_every_depth_has_a_row(kind: str, depths: int) -> None:
    result = hostile(HOSTILE[kind], depths)
    printed = text(depth_report(result))
    shown = {match[1] for line in printed.splitlines() if (match := re.match(r" *(\d+)[* ] ", line))}
    assert shown == {str(row["depth"]) for row in result["depths"]}
    assert ("not finite" in printed) == any("not_finite" in row for row in result["depths"])
    assert "loss" in depths_table(result)
    depth_line(result["depths"], "token_ppl", "perplexity")


@DRAWN
def test_plots_name_depths_without_finite_value(kind: str, tmp_path: Path) -> None:
    result = hostile(HOSTILE[kind], 4)
    svg = plot_depths(result, tmp_path / "plot.svg").read_text()
    lost = [row["depth"] for row in result["depths"] if "token_ppl" in row.get("not_finite", ())]
    assert all(f"not finite at {depth}" in svg for depth in lost)  # in the description; letters are drawn as paths
    assert ("not finite" in svg) == bool(lost)


@pytest.mark.parametrize("kind", ["all not a number", "the largest"])
def test_run_and_comparison_reports_are_written(kind: str, make_run: Callable[..., RunFolder], tmp_path: Path) -> None:
    result = hostile(HOSTILE[kind], 4) | {"step": 3}
    runs = [make_run(name, [result], metrics(3)) for name in ("a", "b")]
    write_report(runs[0])
    lost = any("token_ppl" in row.get("not_finite", ()) for row in result["depths"])
    pages = [runs[0].report.read_text(), text(comparison_report(compare([read_record(run) for run in runs])))]
    write_comparison(runs, tmp_path / "out")
    for page in [*pages, (tmp_path / "out" / "comparison.md").read_text()]:
        assert ("not finite" in page) == lost


@DRAWN
def test_sweep_and_study_reports_are_written(kind: str, tmp_path: Path) -> None:
    result = hostile(HOSTILE[kind], 4)
    last = result["depths"][-1]
    point = {"values": {"seed": 1}, "status": "trained", "step": 5, "loss": None, "depths": result["depths"]}
    sweep = {"points": [point, point | {"values": {"seed": 2}}]}
    assert "token_ppl" not in last.get("not_finite", ()) or "not finite" in text(sweep_report(sweep))
    sweep_markdown(sweep)
    entry = {"evaluation": result, "tokens": 5, "train_seconds": 1.0}
    study = {"date": "2026-01-01", "arms": {"a": {"label": "a", "seeds": {"0": entry, "1": entry}}}}
    plot_study(study, "study", "smoke", tmp_path)
    assert "token_ppl" not in last.get("not_finite", ()) or "not finite" in arms_markdown(study)


@pytest.mark.parametrize("lost", [[1], [4], [1, 2, 3, 4]])
def test_exit_benchmark_is_printed_and_drawn(lost: list[int], tmp_path: Path) -> None:
    result = benchmark()
    rows = [row for row in result["frontier"] if row["depth"] in lost]
    for row in [*rows, *(result["exits"].values() if 4 in lost else ())]:
        row.pop("token_ppl"), row.pop("loss")
        row["not_finite"] = ["loss", "token_ppl"]
    assert "not finite" in text(exit_report(result))
    plot_frontier({"run": result}, tmp_path / "plot.svg")


def test_probe_tables_replace_non_finite_with_null() -> None:
    """Tables of probes are valid JSON; finite numbers are unchanged."""
    tables = {"scale_sweep": {"loss": [1.5, NAN, INF], "loops": 3}, "paths": [[0.0, 1.0]]}
    conditions = Conditions(split="validation", tokenizer={}, dtype="fp32", device="cpu", batch=1)
    result = Result(ModelSource(), conditions, None, 1, 1, "one", [{"depth": 1}], tables=tables).to_json()
    assert result["tables"] == {"scale_sweep": {"loss": [1.5, None, None], "loops": 3}, "paths": [[0.0, 1.0]]}
    assert result["not_finite"] == ["scale_sweep.loss"]
    assert json.loads(json.dumps(result, allow_nan=False)) == result
