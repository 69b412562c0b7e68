"""``--weights ema`` in the commands that open a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from safetensors.torch import load_file

import loopkit
from loopkit.cli import main
from loopkit.runs import RunFolder
from loopkit.runs.checkpoint import EMA, WEIGHTS

SMALL = ("--profile", "smoke", "--set", "train.steps=3", "--set", "evaluate.max_tokens=300")


def run(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(main, [str(word) for word in words], prog_name="loopkit")
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


@pytest.fixture(scope="module")
def averaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with an average, in a form that can be exported; and what its training printed."""
    folder = tmp_path_factory.mktemp("weights")
    words = ("train", "nanbeige_mini", *SMALL, "--set", "train.ema={decay: 0.5, start: 1}", "--name", "averaged")
    (folder / "output").write_text(run(*words, "--runs", folder))
    return folder / "averaged"


def test_training_reports_both_weights(averaged: Path) -> None:
    printed = (averaged.parent / "output").read_text()
    assert "Trained weights after step 3, and their exponential moving average (ema)" in printed
    assert "Averaged weights on validation" in (averaged / "report.md").read_text()


def test_eval_and_audit_measure_the_average(averaged: Path) -> None:
    for weights in ("trained", "ema"):
        words = ("eval", averaged, "--weights", weights, "--no-write", "--json")
        result = json.loads(run(*words))
        (path,) = (averaged / "eval").glob(f"{'ema-' if weights == 'ema' else ''}step-00000003-*.json")
        assert result["depths"] == json.loads(path.read_text())["depths"]
        assert result.get("weights") == (None if weights == "trained" else "ema")
    assert "step-00000003, ema weights" in run("eval", averaged, "--weights", "ema", "--no-write")
    audit = json.loads(run("audit", averaged, "--weights", "ema", "--json"))
    assert audit["subject"] == "averaged, step-00000003, ema weights"


def test_generation_records_its_weights(averaged: Path, tmp_path: Path) -> None:
    words = ("generate", averaged, "--prompt", "The", "--max-tokens", "4", "--json")
    assert "weights" not in json.loads(run(*words))
    assert json.loads(run(*words, "--weights", "ema"))["weights"] == "ema"
    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "out.jsonl"
    prompts.write_text('"The"\n')
    file = ("generate", averaged, "--file", prompts, "--out", out, "--max-tokens", "4")
    run(*file)
    assert "choose another file with --out" in run(*file, "--weights", "ema", code=2)


def test_either_weights_are_exported(averaged: Path, tmp_path: Path) -> None:
    checkpoint = RunFolder(averaged).checkpoint(3)
    for weights, name in (("trained", WEIGHTS), ("ema", EMA)):
        facts = json.loads(
            run("export", averaged, "--to", "nanbeige", "--weights", weights, "--out", tmp_path / weights, "--json")
        )
        assert facts["weights"] == weights
        exported = load_file(tmp_path / weights / "model.safetensors")
        native = load_file(checkpoint / name)
        assert exported["model.embed_tokens.weight"].equal(native["embedding.tokens.weight"])
        assert exported["model.norm.weight"].numel() == len(native["embedding.tokens.weight"][0])
    one, two = (load_file(tmp_path / weights / "model.safetensors") for weights in ("trained", "ema"))
    assert all(not one[name].equal(two[name]) for name in one if name.endswith("weight"))
    words = ("export", averaged, "--weights", "ema", "--out", tmp_path / "again")
    assert "step 3, ema weights" in run(*words)


def test_python_interface_loads_the_average(averaged: Path) -> None:
    model, _, recipe = loopkit.load(averaged, weights="ema")
    assert recipe.train.ema.decay == 0.5
    expected = load_file(RunFolder(averaged).checkpoint(3) / EMA)
    assert all(value.equal(expected[name]) for name, value in model.state_dict().items() if name in expected)


def test_run_without_average_is_refused(runs: Path, tmp_path: Path) -> None:
    message = "contains no averaged weights, because the run has no train.ema"
    for words in (
        ("eval", runs / "tiny"),
        ("generate", runs / "tiny", "--prompt", "The"),
        ("audit", runs / "tiny"),
        ("export", runs / "tiny", "--out", tmp_path / "out"),
    ):
        assert message in run(*words, "--weights", "ema", code=2)
    assert not (tmp_path / "out").exists()
    assert "is a recipe" in run("audit", "wikitext_44m_raw", "--weights", "ema", code=2)
