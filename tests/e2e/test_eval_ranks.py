"""``loopkit eval`` on two ranks equals one process, and only the first rank prints and writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from loopkit.cli import main
from loopkit.recipe import load_recipe
from tests.training.conftest import RECIPE, TEXT
from tests.training.runs import fit

pytestmark = pytest.mark.e2e
pytest.importorskip("math_verify", reason="answers are compared with math-verify: install loopkit[test]")

SECONDS = 300
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
PROBLEMS = [{"question": f"What is {n} + 1?", "answer": f"#### {n + 1}"} for n in (1, 22, 333, 4444, 5)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one step, its texts, and five problems."""
    folder = tmp_path_factory.mktemp("shared")
    (folder / "texts").mkdir()
    for split, text in (("train", TEXT), ("validation", TEXT[:235])):
        (folder / "texts" / f"{split}.txt").write_text(text)
    (folder / "tiny.yaml").write_text(RECIPE)
    (folder / "problems.jsonl").write_text("\n".join(map(json.dumps, PROBLEMS)))
    fit(load_recipe(folder / "tiny.yaml", (), ["model.position=rope", "train.steps=1"]), folder / "runs" / "tiny")
    return folder


def words(folder: Path, *options: str) -> list[str]:
    settings = ("evaluate.batch=1", *options)
    return ["eval", "tiny", "--runs", str(folder / "runs"), "--depths", "1,3", "--json"] + [
        word for setting in settings for word in ("--set", setting)
    ]


def alone(words: list[str]) -> dict[str, Any]:
    result = CliRunner().invoke(main, words, prog_name="loopkit")
    assert result.exit_code == 0, (result.output, result.exception)
    return dict(json.loads(result.stdout))


def on_two_ranks(folder: Path, words: list[str], *launcher: str) -> tuple[dict[str, Any], str]:
    """The results, and the standard error."""
    root = Path(__file__).resolve().parents[2]
    env = {**os.environ, "LOOPKIT_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    env["PYTHONPATH"] = os.pathsep.join([str(root), env.get("PYTHONPATH", "")])
    command = [sys.executable, *launcher, "-m", "loopkit", *words]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr  # one JSON object: a second rank that spoke would break it


def same(actual: Any, expected: Any) -> None:
    """Equal, numbers that were added in another order to 1e-6."""
    assert type(actual) is type(expected)
    if isinstance(expected, dict):
        assert list(actual) == list(expected)
        for key in expected:
            same(actual[key], expected[key])
    elif isinstance(expected, list):
        assert len(actual) == len(expected)
        for left, right in zip(actual, expected, strict=True):
            same(left, right)
    else:
        assert actual == (pytest.approx(expected, rel=1e-6) if isinstance(expected, float) else expected)


def test_results_equal_those_of_one_process(folder: Path) -> None:
    math = f"{{type: math, path: {folder / 'problems.jsonl'}, max_tokens: 6}}"
    command = words(
        folder, f"evaluate.tasks={{perplexity: {{}}, exact_match: {{}}, sums: {math}}}", "evaluate.probes={norms: {}}"
    )
    expected = alone(command)
    assert expected["batches"] % 2 == 1  # so that one rank has more to do
    evaluations = folder / "runs" / "tiny" / "eval"
    completions = evaluations / expected["completions"]
    written = completions.read_text().splitlines(keepends=True)
    assert len(written) == 10
    results = sorted(evaluations.iterdir())
    completions.write_text("".join(written[:3]))  # an evaluation that was interrupted
    actual, stderr = on_two_ranks(folder, [*command, "--nproc", "2"])
    same(actual, expected)
    assert stderr == ""
    assert sorted(completions.read_text().splitlines(keepends=True)) == sorted(written)
    assert sorted(evaluations.iterdir()) == results


@pytest.mark.ci
def test_indivisible_probe_runs_on_first_rank(folder: Path) -> None:
    command = words(folder, "evaluate.probes={norms: {}, radial: {}}")
    actual, stderr = on_two_ranks(folder, command, *TORCHRUN)
    same(actual, alone(command))
    assert stderr.count("the probe radial cannot be divided among ranks; only rank 0 evaluates") == 1
