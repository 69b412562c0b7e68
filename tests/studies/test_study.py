"""Study files: the shipped one, and messages about invalid ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loopkit.errors import UserError
from loopkit.recipe import RecipeError
from loopkit.studies import load_study, reproduce
from loopkit.studies.results import run_entry
from loopkit.studies.runs import planned_runs

BASE = """\
study: 1
title: A study
seeds: [1, 2]
depths: 1-2
arms:
  a: {recipe: wikitext_44m_raw}
  b: {recipe: wikitext_44m_norm}
profiles:
  smoke: {apply: [smoke], seeds: [7]}
claims:
  grows:
    says: It grows.
    left: {arm: a, figure: state_norm.mean}
    right: {arm: b, figure: state_norm.mean}
    relation: times_at_least
    bound: 2
"""


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    return file


def test_the_shipped_study_has_the_seven_arms() -> None:
    study = load_study("readout_blind_spot")
    assert len(study.arms) == 7
    assert sum(claim.must for claim in study.claims.values()) == 8
    assert study.scale("mini").seeds == [42]


def test_runs_of_a_profile(tmp_path: Path) -> None:
    study = load_study(write(tmp_path, BASE))
    runs = list(planned_runs(study, "smoke", (), (), tmp_path))
    assert [(run.arm, run.seed) for run in runs] == [("a", 7), ("b", 7)]
    assert runs[0].recipe.seed == 7
    assert runs[0].folder.name == "mine-smoke-a-seed7"
    assert runs[0].state == "missing"
    assert len(list(planned_runs(study, None, (), (), tmp_path))) == 4
    with pytest.raises(ValueError, match="has no profile 'samll'"):
        study.scale("samll")
    with pytest.raises(ValueError, match="has no arm c"):
        list(planned_runs(study, None, (), ("c",), tmp_path))


def test_run_entry_contains_the_training_curve(tmp_path: Path) -> None:
    run = next(planned_runs(load_study(write(tmp_path, BASE)), "smoke", (), (), tmp_path))
    run.folder.create()
    facts = {"parameters": {"unique": 9}, "machine": {}, "packages": {}}
    run.folder.provenance.write_text(json.dumps(facts))
    lines = [{"step": n, "loss": 4.0 / n, "loops": 2 * n, "tokens": 8 * n, "step_s": 0.5} for n in (1, 2)]
    run.folder.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    entry = run_entry(run, {"evaluation": {"depths": []}})
    assert entry["curve"] == {"step": [1, 2], "loss": [4.0, 2.0], "loops": {"2": 1, "4": 1}}
    assert (entry["steps"], entry["tokens"], entry["train_seconds"]) == (2, 16, 1.0)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("claims:", "clams:", "did you mean 'claims'"),
        ("arm: b", "arm: c", "the study has no arm 'c'"),
        ("figure: state_norm.mean}", "figure: state_norm.mean, depth: 2-3}", "depth 3 is not measured"),
        ("figure: state_norm.mean}", "figure: state_norm.mean, depth: lats}", "not a depth or a range"),
        ("relation: times_at_least", "relation: bigger", "must be 'below' or"),
        ("    right: {arm: b, figure: state_norm.mean}\n", "", "compares left with right, which is missing"),
        ("recipe: wikitext_44m_norm", "recipe: wikitext_44m_nrom", "no recipe is called 'wikitext_44m_nrom'"),
        ("apply: [smoke]", "apply: [smok]", "has no profile 'smok'"),
        ("seeds: [1, 2]", "seeds: []", "with at least 1"),
        ("study: 1", "study: 2", "must be 1"),
    ],
)
def test_a_faulty_study_is_refused_with_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in BASE
    with pytest.raises(RecipeError, match=message) as caught:
        load_study(write(tmp_path, BASE.replace(old, new, 1)))
    assert caught.value.problems[0].origin.line > 0


def test_an_unknown_study_gets_a_hint() -> None:
    with pytest.raises(RecipeError, match="did you mean 'readout_blind_spot'"):
        load_study("readout_blindspot")


def test_results_that_cannot_be_written_are_refused_first(tmp_path: Path) -> None:
    """Before a run is planned: a file stands where the folder of the results should be."""
    (tmp_path / "taken").write_text("")
    study = load_study(write(tmp_path, BASE))
    with pytest.raises(UserError, match=r"taken: no file can be written there .*--results"):
        reproduce(study, profile="nothing of this name", results=tmp_path / "taken" / "results.json")
