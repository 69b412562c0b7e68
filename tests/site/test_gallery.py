"""The pages of the gallery, from synthetic studies and results."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from docs.site.gallery import (
    Cost,
    RecipeEntry,
    StudyFile,
    curves_of,
    gallery_page,
    read_entry,
    read_study,
    recipe_page,
    study_page,
)
from docs.site.gallery.small_plot import depth_line, loop_bars
from loopkit.recipe.difference import experiment_differences
from loopkit.report.pages.markdown import cell, code, printed, prose, recipe_value, table

STUDY = """study: 1
title: A study
paper: arXiv:1234.56789
seeds: [1]
depths: 1-4
arms:
  one: {recipe: wikitext_44m_raw, label: "raw, as it is"}
  two: {recipe: wikitext_44m_raw, label: changed, set: [train.lr.peak=1e-3]}
claims:
  better: {says: One beats two., left: {arm: one, figure: loss}, right: {arm: two, figure: loss}, relation: lower_by,
           bound: 0.0, paper: 1 against 2}
reported:
  table_1: {columns: [loss, steps], one: [5.40, 12000], two: [1.1e9, 3]}
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "a_study.yaml"
    path.write_text(STUDY)
    return path


def results(sample: Callable[..., Any], **scales: list[str]) -> dict[str, Any]:
    """Build a results file with these arms at these scales."""
    run = {
        "run": "r",
        "recipe": "wikitext_44m_raw",
        "recipe_hash": "0123abcd",
        "parameters": 574464,
        "steps": 450,
        "tokens": 921600,
        "train_seconds": 232.2,
        "machine": {"processor": "AMD EPYC", "cores": 2},
        "packages": {},
        "evaluation": sample(depths=4),
        "early_exit": {"exits": {"logit_margin": {"exits_by_loop": [3, 0, 1, 4]}}},
    }
    claim = {
        "says": "One beats two.",
        "must": True,
        "relation": "lower_by",
        "bound": 0.0,
        "paper": "1 against 2",
        "measured": -0.5,
        "left": 3.0,
        "right": 2.0,
        "holds": False,
        "seeds": [-0.5],
    }
    result = {
        scale: {
            "date": "2026-01-02T03:04:05Z",
            "arms": {arm: {"label": arm, "seeds": {"1": run}} for arm in arms},
            "claims": {"better": claim},
        }
        for scale, arms in scales.items()
    }
    return {"study": "a_study", "title": "A study", "profiles": result}


def entry_of(root: Path, *studies: StudyFile, name: str = "wikitext_44m_raw") -> RecipeEntry:
    return read_entry(root / "recipes" / f"{name}.yaml", studies, Cost(43_933_696, 1.1e9, None, "the length"))


def test_difference_treats_a_new_type_as_one_change() -> None:
    parent = {"description": "a", "train": {"steps": 4, "lr": {"type": "constant", "peak": 1e-3}}, "kept": [1, 2]}
    child = {
        "description": "b",
        "train": {"steps": 5, "lr": {"type": "cosine", "peak": 1e-3}, "new": True},
        "kept": [1, 2],
    }
    assert [(c.key, *map(recipe_value, c.values)) for c in experiment_differences(parent, child)] == [
        ("train.steps", "4", "5"),
        ("train.lr", "{type: constant, peak: 0.001}", "{type: cosine, peak: 0.001}"),
        ("train.new", "", "true"),
    ]


def test_equal_recipes_have_no_difference(root: Path) -> None:
    values = entry_of(root).recipe.values
    assert experiment_differences(values, values) == []


def test_recipe_without_evidence_is_validated(root: Path) -> None:
    entry = entry_of(root)
    assert entry.status == "validated"
    assert "No study runs this recipe, so there are no results." in recipe_page(entry, frozenset(), {})


def test_study_without_results_is_marked(root: Path, study: Path) -> None:
    read = read_study(study)
    assert "No results yet" in study_page(read, frozenset(), {})
    entry = entry_of(root, read)
    assert entry.status == "validated"
    page = recipe_page(entry, frozenset(), {})
    assert "Not evaluated yet: no results in [A study](../studies/a_study.md)." in page
    assert "| paper, table 1 | 5.4 | 12,000 |" in page


def test_status_is_largest_scale_of_unchanged_recipe(root: Path, study: Path, sample: Callable[..., Any]) -> None:
    results_file = study.with_name("a_study.results.json")
    results_file.write_text(json.dumps(results(sample, smoke=["one"], mini=["one", "two"])))
    assert entry_of(root, read_study(study)).status == "mini"
    results_file.write_text(json.dumps(results(sample, full=["two"], smoke=["one"])))
    assert entry_of(root, read_study(study)).status == "smoke"  # the arm at full scale changes the recipe


def test_recipe_page_has_runs_depths_claims_exits(root: Path, study: Path, sample: Callable[..., Any]) -> None:
    study.with_name("a_study.results.json").write_text(json.dumps(results(sample, mini=["one", "two"])))
    page = recipe_page(
        entry_of(root, read_study(study)), frozenset(), {("a_study", "one", "mini", "depths"): "../plots/x.svg"}
    )
    assert "| 1 | 574,464 | 450 | 921,600 | 232 s | AMD EPYC, 2 cores, no GPU | `0123abcd` |" in page
    assert "2026-01-02" in page
    assert "| **4** | 3.3000 |" in page
    assert "![Perplexity" in page
    assert "../plots/x.svg" in page
    assert "with `train.lr.peak=1e-3`" in page
    assert "-50.0% (3.000 against 2.000); required: lower by 0%" in page
    assert 'lk-does-not-hold">does not hold<' in page
    assert "3 of 8 at loop 1" in page


def test_pages_contain_no_absolute_paths(root: Path) -> None:
    page = recipe_page(entry_of(root, name="ouro_scratch_gate"), frozenset(), {})
    assert str(root) not in page
    assert "start_from: ../runs/ouro_scratch" in page
    assert '| `train.start_from` | `null` | `"../runs/ouro_scratch"` |' in page


def test_table_of_many_depths_is_collapsed(root: Path, study: Path, sample: Callable[..., Any]) -> None:
    result = results(sample, mini=["one"])
    result["profiles"]["mini"]["arms"]["one"]["seeds"]["1"]["evaluation"] = sample(depths=40)
    study.with_name("a_study.results.json").write_text(json.dumps(result))
    page = recipe_page(entry_of(root, read_study(study)), frozenset(), {})
    assert '??? note "Seed 1, by depth (40 depths)"\n\n    | depth |' in page


def test_recipe_page_shows_training_curve(root: Path, study: Path, sample: Callable[..., Any]) -> None:
    plots = {("a_study", "one", "mini", "curve"): "../plots/c.svg"}
    results_file = study.with_name("a_study.results.json")
    result = results(sample, mini=["one"])
    run = result["profiles"]["mini"]["arms"]["one"]["seeds"]["1"]
    results_file.write_text(json.dumps(result))
    assert curves_of({"1": run}) == {}
    assert "plots/c.svg" not in recipe_page(entry_of(root, read_study(study)), frozenset(), {})
    run["curve"] = {"step": [1.5, 3.5], "loss": [4.25, 2.5], "loops": {"2": 3, "4": 1}}
    results_file.write_text(json.dumps(result))
    page = recipe_page(entry_of(root, read_study(study)), frozenset(), plots)
    caption = "Training loss by optimizer step, in nats per token: 4.25 to 2.5 with seed 1; 2 to 4 loops per step"
    assert f"![{caption}](../plots/c.svg)" in page


def test_study_page_has_claims_and_valid_links(study: Path, sample: Callable[..., Any]) -> None:
    study.with_name("a_study.results.json").write_text(json.dumps(results(sample, mini=["one", "two"])))
    page = study_page(read_study(study), frozenset(), {"mini": ["plots/a_study/mini/depths.svg"]})
    assert "0 of 1 claims hold, 1 do not" in page
    assert "](../plots/a_study/mini/depths.svg)" in page
    assert "wikitext_44m_raw.md" not in page
    assert "wikitext_44m_raw.md" in study_page(read_study(study), frozenset({"gallery/wikitext_44m_raw.md"}), {})


def test_damaged_results_are_an_error(study: Path) -> None:
    study.with_name("a_study.results.json").write_text("{")
    with pytest.raises(ValueError, match=r"a_study\.results\.json is not JSON"):
        read_study(study)


def test_cards_have_data_for_the_filter(root: Path, study: Path, sample: Callable[..., Any]) -> None:
    study.with_name("a_study.results.json").write_text(json.dumps(results(sample, mini=["one"])))
    read = read_study(study)
    page = gallery_page([entry_of(root, read, name="wikitext_44m_norm"), entry_of(root, read)])
    first, second = re.findall(r'<article .*?data-components="(.*?)" data-paper="(.*?)" data-status="(.*?)">', page)
    assert "readout/raw" in first[0].split()
    assert first[1:] == ("arXiv:2606.24898", "mini")
    assert "readout/norm" in second[0].split()
    assert "gate/none" not in second[0]
    assert page.count("<svg") == 1
    assert "not evaluated yet" in page
    assert '<option value="readout/raw">raw</option>' in page


def test_incomplete_parent_is_not_compared(tmp_path: Path, root: Path) -> None:
    text = (root / "recipes/base/wikitext_44m.yaml").read_text()
    (tmp_path / "base.yaml").write_text(text.replace("  width: 512\n", "", 1))
    (tmp_path / "child.yaml").write_text("loopkit: 2\nextends: base.yaml\nmodel: {width: 512}\n")
    entry = read_entry(tmp_path / "child.yaml", [])
    assert entry.changes is None
    assert "is not a complete recipe" in recipe_page(entry, frozenset(), {})


def test_line_leaves_out_outliers() -> None:
    rows = [{"depth": 1, "loss": 900.0}, {"depth": 2, "loss": 3.0, "trained": True}, {"depth": 4, "loss": 2.0}]
    drawn = depth_line(rows, "loss", "loss")
    assert drawn.count("<circle") == 2
    assert "1 far above" in drawn
    assert 'class="trained"' in drawn
    assert depth_line(rows[:1], "loss", "loss") == depth_line(rows, "token_ppl", "ppl") == ""


def test_bars_have_a_text_alternative() -> None:
    assert "32 of 32 at loop 1" in loop_bars([32, 0], "stopped")
    assert loop_bars([0, 0], "stopped").count("<rect") == 2


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5.40, "5.4"),
        (39207, "39,207"),
        (1.1e9, "1.1e9"),
        (4.7e-9, "4.7e-9"),
        (0.0, "0"),
        (-3.9e-8, "-3.9e-8"),
        ("x", "x"),
    ],
)
def test_printed_adds_no_digits(value: Any, text: str) -> None:
    assert printed(value) == text


def test_markdown_is_escaped() -> None:
    assert cell("a|b `c|d`\ne") == "a\\|b `c|d` e"
    assert prose("x_1 <b> ``y_2`` [z]") == "x\\_1 &lt;b&gt; `y_2` \\[z\\]"
    assert code("```\nx\n```").startswith("````text\n")
    assert len({line.count("|") for line in table(("a", "b"), [("1", "2"), ("3", "4")]).splitlines()}) == 1
