"""The pages of a comparison: its tables and plots, and a self-contained HTML file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from loopkit.cli import main
from loopkit.recipe import load_recipe
from loopkit.recipe.difference import experiment_differences
from loopkit.report import compare, read_record, write_comparison
from loopkit.report.pages.markdown import recipe_value
from loopkit.report.plots.compare import draw_comparison, draw_losses
from loopkit.report.plots.style import PAPER, style
from loopkit.report.record import Record
from loopkit.runs import RunFolder

Sample = Callable[..., dict[str, Any]]
Curves = Callable[..., list[dict[str, Any]]]
PROVENANCE = {"packages": {"torch": "2.13.0"}, "machine": {"processor": "AMD EPYC", "memory_bytes": 25 * 10**9}}


@pytest.fixture
def runs(make_run: Callable[..., RunFolder], sample: Sample, curves: Curves) -> list[RunFolder]:
    """One run of 600 steps at four loops, and one of 300 at two, with another readout, seed, tokenizer and torch."""
    command = ["/somewhere/loopkit/__main__.py", "train", "wikitext_44m_raw", "--set", "a={b: 1}"]
    sessions = [{"command": command, "status": "finished"}]
    provenance = PROVENANCE | {
        "recipe": "wikitext_44m_raw",
        "recipe_hash": "0123abcd",
        "parameters": {"unique": 574464},
    }
    steps = [sample(4, step=step) for step in range(100, 601, 100)]
    long = make_run("long", steps, curves(600), sessions=sessions, **provenance)
    other = {"tokenizer": {"type": "bytes", "size": 256}, "data": "0a" * 32}
    few = [sample(4, (1, 2), step=step, **other) for step in range(100, 301, 100)]
    provenance["packages"] = {"torch": "2.12.0"}
    short = make_run("short", few, curves(300, lambda step: 2), **provenance)
    recipe = load_recipe("wikitext_44m_norm", ["smoke"], ["seed=7"])
    short.resolved.write_text(recipe.to_yaml())
    return [long, short]


def row(text: str, name: str) -> list[str]:
    """Return the cells of the first table row with this name."""
    match = re.search(rf"^\| {re.escape(name)} \|(.*)\|$", text, re.MULTILINE)
    assert match, name
    return [cell.strip() for cell in match[1].split(" | ")]


def test_runs_and_their_cost_are_listed(runs: list[RunFolder], tmp_path: Path) -> None:
    written = write_comparison(runs, tmp_path / "out")
    names = ["comparison.md", "comparison.html", "training.svg", "by_tokens.svg", "by_flops.svg"]
    assert [path.name for path in written] == names
    assert all(path.is_file() for path in written)
    text = written[0].read_text()
    assert row(text, "hash of the resolved recipe") == ["`0123abcd`", "`0123abcd`"]
    assert row(text, "seed") == ["42", "7"]
    assert row(text, "parameters") == ["574,464", "574,464"]
    assert row(text, "optimizer steps") == ["600", "300"]
    assert row(text, "training FLOPs") == ["2.4T", "600G"]
    assert row(text, "last evaluated checkpoint") == ["step-00000600", "step-00000600"]
    assert row(text, "trained with") == ["`loopkit train wikitext_44m_raw --set 'a={b: 1}'`", "-"]
    assert row(text, "torch") == ["2.13.0", "2.12.0"]
    assert row(text, "memory") == ["25GB", "25GB"]


def test_both_budgets_with_trained_depths_in_bold(runs: list[RunFolder], tmp_path: Path) -> None:
    text = write_comparison(runs, tmp_path)[0].read_text()
    tokens, flops = re.split(r"^## At equal training compute$", text, flags=re.MULTILINE)
    assert row(tokens.partition("## At equal training tokens")[2], "optimizer step") == ["300", "300"]
    assert row(flops, "optimizer step") == ["100", "300"]
    assert row(flops, "trained depths") == ["4", "1-2"]
    bits = flops.partition("### Bits per byte")[2]
    assert [[cell.startswith("**") for cell in row(bits, depth)] for depth in "1234"] == [
        [False, True],
        [False, True],
        [False, False],
        [True, False],
    ]


def test_differing_settings_and_recipes_are_listed(runs: list[RunFolder], tmp_path: Path) -> None:
    text = write_comparison(runs, tmp_path)[0].read_text()
    assert "**Note:** the tokenizers differ: compare bits per byte" in text
    assert row(text, "tokenizer") == ["{type: regex, size: 20000}", "{type: bytes, size: 256}"]
    assert row(text, "data") == ["f00d", "`0a0a0a0a0a0a`"]
    assert row(text, "`seed`") == ["`42`", "`7`"]
    assert row(text, "`model.readout`")[0] == "`raw`"
    assert "`description`" not in text


def test_equal_runs_have_no_differences(
    make_run: Callable[..., RunFolder], sample: Sample, curves: Curves, tmp_path: Path
) -> None:
    text = write_comparison([make_run(name, [sample()], curves(600)) for name in "ab"], tmp_path)[0].read_text()
    assert "are equal in all runs." in text
    assert "None: the resolved recipes are equal." in text
    assert "## Provenance" not in text


def test_unsupervised_last_loop_has_no_curve(
    make_run: Callable[..., RunFolder], sample: Sample, curves: Curves, tmp_path: Path
) -> None:
    unseen = [{**line, "ce": [*line["ce"][:-1], None]} for line in curves(600)]
    runs = [make_run("a", [sample()], unseen), make_run("b", [sample()], curves(600))]
    written = {path.name: path.read_text() for path in write_comparison(runs, tmp_path)}
    assert "b ends at" in written["training.svg"]
    assert "a ends at" not in written["training.svg"]


def test_non_finite_differs_from_not_measured(
    make_run: Callable[..., RunFolder], sample: Sample, curves: Curves, tmp_path: Path
) -> None:
    broken = sample(3)
    del broken["depths"][1]["token_ppl"]
    broken["depths"][1]["not_finite"] = ["token_ppl"]
    runs = [make_run("a", [broken], curves(600)), make_run("b", [sample(2)], curves(600))]
    text = write_comparison(runs, tmp_path)[0].read_text().partition("### Perplexity")[2]
    assert row(text, "2")[0] == "not finite"
    assert row(text, "3")[1] == "-"


def test_many_depths_are_thinned(
    make_run: Callable[..., RunFolder], sample: Sample, curves: Curves, tmp_path: Path
) -> None:
    runs = [make_run(name, [sample(100, (5, 7))], curves(600)) for name in "ab"]
    text = write_comparison(runs, tmp_path)[0].read_text().partition("### Perplexity")[2].partition("###")[0]
    assert re.findall(r"^\| (\d+) \|", text, re.MULTILINE) == ["1", "2", "4", "5", "7", "8", "16", "32", "64", "100"]


def test_html_is_self_contained_and_escaped(runs: list[RunFolder], tmp_path: Path) -> None:
    result = json.loads((runs[0].evaluations / "5.json").read_text()) | {"slice": "<script>alert(1)</script>"}
    (runs[0].evaluations / "5.json").write_text(json.dumps(result))
    text = write_comparison(runs, tmp_path)[1].read_text()
    assert "&lt;script&gt;" in text
    assert re.findall(r"<(?:img|script|link|iframe|object)\b|@import|url\((?!#)|(?:src|href)=\"(?!#)", text) == []
    assert text.count('<svg role="img" aria-label="') == text.count("</svg>") == 3
    assert "<title>Runs side by side</title>" in text
    assert '<th scope="col"></th>' not in text


def test_markers_show_trained_depths_if_ranges_differ(runs: list[RunFolder], tmp_path: Path) -> None:
    with style():
        panel = draw_comparison(compare([read_record(run) for run in runs]), "tokens").axes[0]
    assert not panel.patches
    filled = [list(line.get_xdata()) for line in panel.lines if line.get_linestyle() == "None"]
    assert filled == [[4], [1, 2]]
    assert all(line.get_markerfacecolor() == PAPER for line in panel.lines if line.get_linestyle() != "None")


def test_trained_depth_keeps_marker_among_many(sample: Sample, curves: Curves) -> None:
    records = [Record(name, curves(600), [sample(100, (at, at))], {}) for name, at in (("a", 4), ("b", 6))]
    with style():
        panel = draw_comparison(compare(records), "tokens").axes[0]
    assert [list(line.get_xdata()) for line in panel.lines if line.get_linestyle() == "None"] == [[4], [6]]


def test_losses_against_tokens_and_flops(runs: list[RunFolder]) -> None:
    with style():
        tokens, flops = draw_losses([read_record(run) for run in runs]).axes
    assert (tokens.get_xlabel(), flops.get_xlabel()) == ("training tokens", "training FLOPs")
    assert "nats per token" in tokens.get_ylabel()
    assert [max(line.get_xdata()) <= 600 * 4096 for line in tokens.lines] == [True, True]
    assert max(flops.lines[0].get_xdata()) > 3 * max(flops.lines[1].get_xdata())


def test_command_writes_files_and_valid_json(runs: list[RunFolder], tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["report", "long", "short", "--runs", str(tmp_path), "--out", str(out)]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert f"written: {out / 'comparison.html'}" in done.stdout
    assert set(json.loads(CliRunner().invoke(main, [*words, "--json"]).stdout)) >= {"tokens", "flops"}


def test_command_rejects_out_for_one_run(runs: list[RunFolder], tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["report", "long", "--runs", str(tmp_path), "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert "two or more runs" in done.output


def test_variation_lists_differing_keys() -> None:
    recipes: list[dict[str, Any]] = [
        {"seed": 1, "lr": {"type": "constant", "peak": 1}, "kept": 0},
        {"seed": 2, "lr": {"type": "constant", "peak": 1}, "kept": 0},
        {"seed": 1, "lr": {"type": "cosine"}, "kept": 0, "new": True},
    ]
    assert [(change.key, tuple(map(recipe_value, change.values))) for change in experiment_differences(*recipes)] == [
        ("seed", ("1", "2", "1")),
        ("lr", ("{type: constant, peak: 1}", "{type: constant, peak: 1}", "cosine")),
        ("new", ("", "", "true")),
    ]
    assert [change.values for change in experiment_differences(*recipes[:2])] == [(1, 2)]
