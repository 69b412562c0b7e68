from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loopkit.report import averaged_report, compare, comparison_report, console, read_record, write_report
from loopkit.report.plots.compare import plot_comparison
from loopkit.report.record import Record
from loopkit.report.tables.averaged import averaged_lines

Sample = Callable[..., dict[str, Any]]
Curves = Callable[..., list[dict[str, Any]]]


def record(name: str, evaluations: list[dict[str, Any]], lines: list[dict[str, Any]]) -> Record:
    return Record(name, lines, evaluations, {})


@pytest.fixture
def two(sample: Sample, curves: Curves) -> list[Record]:
    """One run of 600 steps at four loops, one of 300 at two, each evaluated every 100 steps."""
    return [
        record("long", [sample(4, step=step) for step in range(100, 601, 100)], curves(600)),
        record("short", [sample(4, step=step) for step in range(100, 301, 100)], curves(300, lambda step: 2)),
    ]


def test_token_budget_is_that_of_shortest_run(two: list[Record]) -> None:
    equal = compare(two)["tokens"]
    assert equal["budget"] == 300 * 4096
    assert [(row["run"], row["step"], row["spent"]) for row in equal["runs"]] == [
        ("long", 300, 300 * 4096),
        ("short", 300, 300 * 4096),
    ]


def test_equal_compute_gives_cheaper_model_more_steps(two: list[Record]) -> None:
    equal = compare(two)["flops"]
    assert equal["budget"] == 300 * 2e9
    assert [(row["run"], row["step"]) for row in equal["runs"]] == [("long", 100), ("short", 300)]


def test_unknown_cost_is_noted(two: list[Record]) -> None:
    for line in two[0].lines:
        del line["flops"]  # type: ignore[attr-defined]
    result = compare(two)
    assert "flops" not in result
    assert "metrics.jsonl of long does not count them" in " ".join(result["notes"])


def test_missing_evaluation_within_budget_is_noted(sample: Sample, curves: Curves) -> None:
    runs = [record("a", [sample(step=600)], curves(600)), record("b", [sample(step=10)], curves(10))]
    assert "a has no evaluation within" in " ".join(compare(runs)["notes"])


def test_different_settings_are_named(sample: Sample, curves: Curves) -> None:
    other = {"tokenizer": {"type": "bytes", "size": 256}, "protocol": "half_overlap"}
    runs = [record("a", [sample()], curves(600)), record("b", [sample(**other)], curves(600))]
    result = compare(runs)
    assert result["differences"]["protocol"] == {"a": "non_overlapping", "b": "half_overlap"}
    assert "bits per byte" in result["notes"][0]
    assert "differ in protocol" in result["notes"][1]
    assert compare([runs[0], record("c", [sample()], curves(600))])["differences"] == {}


def test_invalid_comparisons_are_rejected(sample: Sample, curves: Curves) -> None:
    run = record("a", [sample()], curves(600))
    with pytest.raises(ValueError, match="at least two"):
        compare([run])
    with pytest.raises(ValueError, match="more than once"):
        compare([run, run])
    with pytest.raises(ValueError, match="loopkit eval b"):
        compare([run, record("b", [], curves(600))])


def test_table_fits_eighty_columns(two: list[Record], sample: Sample, curves: Curves) -> None:
    two.append(record("a_recipe_with_a_long_name-mini", [sample(16, step=100)], curves(300)))
    file = io.StringIO()
    console(file).print(comparison_report(compare(two)))
    text = file.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    assert "At equal training tokens" in text
    assert "At equal training FLOPs" in text
    assert "…" not in text


def test_plots_have_both_budgets(two: list[Record], tmp_path: Path) -> None:
    result = compare(two)
    for budget in ("tokens", "flops"):
        assert plot_comparison(result, tmp_path / f"{budget}.svg", budget).is_file()
    del result["flops"]
    with pytest.raises(ValueError, match="cannot be compared at equal flops"):
        plot_comparison(result, tmp_path / "no.svg", "flops")


def test_record_is_read_from_run_folder(make_run: Callable[..., Any], sample: Sample, curves: Curves) -> None:
    run = read_record(make_run("a", [sample(step=600), sample(step=300)], curves(600), recipe="r"))
    assert [result["step"] for result in run.evaluations] == [300, 600]
    assert run.latest("validation") == sample(step=600)
    assert run.latest("test") is None
    assert run.spent(0, "tokens") == 0
    assert run.spent(300, "tokens") == 300 * 4096
    assert run.spent(601, "tokens") is None


def test_averaged_weights_are_paired_and_not_compared(
    make_run: Callable[..., Any], sample: Sample, curves: Curves
) -> None:
    better = [row | {"loss": row["loss"] - 1, "token_ppl": 1.5} for row in sample()["depths"]]
    average = sample(step=600, weights="ema") | {"depths": better}
    other_slice = sample(step=600, slice="another")
    run = read_record(make_run("a", [sample(step=300), sample(step=600), other_slice, average], curves(600)))
    assert run.latest() == other_slice
    assert run.latest(weights="ema") == average
    assert run.averaged("validation") == (sample(step=600), average)
    headings, lines = averaged_lines(sample(step=600), average)
    assert headings[:3] == ("depth", "loss", "loss, ema")
    assert [float(text) for text in lines[0][1:3]] == [3.6, 2.6]
    plain = read_record(make_run("b", [sample(step=600)], curves(600)))
    assert plain.averaged() is None
    assert compare([run, plain])["tokens"]["runs"][0]["depths"] == sample()["depths"]
    folder = make_run("c", [sample(step=600), average], curves(600))
    write_report(folder)
    assert "Averaged weights on validation" in folder.report.read_text()
    only = make_run("d", [average], curves(600))
    write_report(only)
    assert "Evaluation on validation with averaged weights" in only.report.read_text()
    assert "averaged weights; trained depths in bold" in only.model_card.read_text()
    shown = io.StringIO()
    console(file=shown).print(averaged_report(sample(step=600), average))
    assert "Trained weights after step 600, and their exponential moving average (ema)" in shown.getvalue()
    assert "…" not in shown.getvalue()


def test_damaged_evaluation_is_named(make_run: Callable[..., Any], sample: Sample, curves: Curves) -> None:
    folder = make_run("a", [sample()], curves(1))
    (folder.evaluations / "0.json").write_text('{"split": ')
    with pytest.raises(ValueError, match=r"0\.json is not JSON"):
        read_record(folder)
