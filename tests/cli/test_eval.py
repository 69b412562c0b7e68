"""``loopkit eval`` with a task that the recipe does not ask, on a machine without the recipe's data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from loopkit.cli import main
from loopkit.inference import complete

pytest.importorskip("math_verify", reason="answers are compared with math-verify: install loopkit[test]")

Eval = Callable[..., str]


@pytest.fixture
def evaluate(runs: Path) -> Eval:
    def run(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(main, ["eval", "tiny", "--runs", str(runs), *words], prog_name="loopkit")
        assert result.exit_code == code, (result.output, result.exception)
        return result.output

    return run


def of_task(runs: Path, name: str, *options: str) -> list[str]:
    path = f"path={runs.parent / 'problems.jsonl'}"
    settings = [f"evaluate.tasks.{name}.{option}" for option in (path, "max_tokens=6", *options)]
    return [word for setting in settings for word in ("--set", setting)]


def test_problems_are_asked_at_every_depth_and_an_interrupted_evaluation_goes_on(
    evaluate: Eval, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--task", "sums=math", *of_task(runs, "sums"), "--depths", "1,3", "--batch", "2", "--json"]
    found = json.loads(evaluate(*words))
    assert [row["depth"] for row in found["depths"]] == [1, 3]
    for row in found["depths"]:
        assert set(row["sums"]) == {"accuracy", "unfinished", "unparsed"}
        assert 0 <= row["sums"]["accuracy"] <= 1
    asked = found["tasks"]["sums"]
    assert (asked["type"], asked["problems"], asked["max_tokens"]) == ("math", 5, 6)
    assert "<|im_start|>user\n{question}<|im_end|>" in asked["prompt_template"]
    assert "<|im_start|>user\nWhat is 1 + 1?<|im_end|>" in asked["example_prompt"]
    assert found["split"] == "sums"
    assert "tokens_scored" not in found
    kept = runs / "tiny" / "eval" / found["completions"]
    lines = [json.loads(line) for line in kept.read_text().splitlines()]
    assert {(line["task"], line["key"], line["depth"]) for line in lines} == {
        ("sums", str(key), depth) for key in range(1, 6) for depth in (1, 3)
    }
    content = kept.read_bytes()
    cut = content.splitlines(keepends=True)
    kept.write_bytes(b"".join(cut[:6]) + cut[6][:20])
    written: list[int] = []

    def counting(*arguments: object, **options: object) -> object:
        written.append(len(arguments[2]))  # type: ignore[arg-type]
        return complete(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("loopkit.evaluation.generation.complete", counting)
    assert json.loads(evaluate(*words)) == found
    assert sum(written) == 4, "what was there is not generated again, what was cut off is"
    assert sorted(kept.read_bytes().splitlines()) == sorted(content.splitlines())
    report = (runs / "tiny" / "report.md").read_text()
    assert "## Evaluation on sums" in report
    assert "sums, 5 generations at each depth" in report


def test_other_options_are_other_texts_and_another_result(evaluate: Eval, runs: Path) -> None:
    words = ["--task", "math", *of_task(runs, "math", "limit=1"), "--depths", "2", "--json"]
    first = json.loads(evaluate(*words))
    kept = runs / "tiny" / "eval" / first["completions"]
    count = len(kept.read_text().splitlines())
    evaluate(*words, "--set", "evaluate.tasks.math.template=plain")
    evaluate(*words, "--dtype", "bf16_autocast")
    evaluate(*words)
    assert len(kept.read_text().splitlines()) == count + 2
    assert len(list((runs / "tiny" / "eval").glob("step-*-math-*.json"))) == 3


def test_the_table_has_the_figures_of_every_task(evaluate: Eval, runs: Path) -> None:
    words = [word for name in ("a", "b") for word in of_task(runs, name, "limit=1")]
    text = evaluate("--task", "a=math", "--task", "b=math", *words, "--depths", "1")
    assert all(word in text for word in ("accuracy", "unfinished", "unparsed"))
    assert "a, 1 generations at each depth; b, 1 generations at each depth" in text


def test_what_is_missing_is_said(evaluate: Eval) -> None:
    assert "no task is called 'maths'" in evaluate("--task", "maths", code=2)
    missing = evaluate("--task", "math", "--set", "evaluate.tasks.math.path=nowhere.jsonl", code=2)
    assert "there is no such file" in missing
    assert "data.source.path" in evaluate("--task", "perplexity", code=2), "a task that scores text needs the data"
