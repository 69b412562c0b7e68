"""``loopkit eval`` on two ranks finds what one process does, and only the first rank speaks and writes."""

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
    """What was found, and what was said beside it."""
    root = Path(__file__).resolve().parents[2]
    env = {**os.environ, "LOOPKIT_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    env["PYTHONPATH"] = os.pathsep.join([str(root), env.get("PYTHONPATH", "")])
    command = [sys.executable, *launcher, "-m", "loopkit", *words]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr  # one JSON object: a second rank that spoke would break it


def same(found: Any, expected: Any) -> None:
    """Equal, numbers that were added in another order to 1e-6."""
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for key in expected:
            same(found[key], expected[key])
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other)
    else:
        assert found == (pytest.approx(expected, rel=1e-6) if isinstance(expected, float) else expected)


def test_losses_counts_and_texts_are_those_of_one_process(folder: Path) -> None:
    math = f"{{type: math, path: {folder / 'problems.jsonl'}, max_tokens: 6}}"
    wanted = words(
        folder, f"evaluate.tasks={{perplexity: {{}}, exact_match: {{}}, sums: {math}}}", "evaluate.probes={norms: {}}"
    )
    expected = alone(wanted)
    assert expected["batches"] % 2 == 1  # so that one rank has more to do
    evaluations = folder / "runs" / "tiny" / "eval"
    kept = evaluations / expected["completions"]
    written = kept.read_text().splitlines(keepends=True)
    assert len(written) == 10
    results = sorted(evaluations.iterdir())
    kept.write_text("".join(written[:3]))  # an evaluation that was interrupted
    found, said = on_two_ranks(folder, [*wanted, "--nproc", "2"])
    same(found, expected)
    assert said == ""
    assert sorted(kept.read_text().splitlines(keepends=True)) == sorted(written)
    assert sorted(evaluations.iterdir()) == results


def test_what_cannot_be_shared_out_is_measured_by_the_first_rank_alone(folder: Path) -> None:
    wanted = words(folder, "evaluate.probes={norms: {}, radial: {}}")
    found, said = on_two_ranks(folder, wanted, *TORCHRUN)
    same(found, alone(wanted))
    assert said.count("the probe radial cannot be divided among ranks; only rank 0 evaluates") == 1
