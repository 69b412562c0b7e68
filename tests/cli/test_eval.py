"""``loopkit eval`` with a task that the recipe does not have, without the recipe's data."""

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


def task_settings(runs: Path, name: str, *options: str) -> list[str]:
    path = f"path={runs.parent / 'problems.jsonl'}"
    settings = [f"evaluate.tasks.{name}.{option}" for option in (path, "max_tokens=6", *options)]
    return [word for setting in settings for word in ("--set", setting)]


def test_an_interrupted_task_evaluation_resumes(evaluate: Eval, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--task", "sums=math", *task_settings(runs, "sums"), "--depths", "1,3", "--batch", "2", "--json"]
    result = json.loads(evaluate(*words))
    assert [row["depth"] for row in result["depths"]] == [1, 3]
    for row in result["depths"]:
        assert set(row["sums"]) == {"accuracy", "unfinished", "unparsed"}
        assert 0 <= row["sums"]["accuracy"] <= 1
    task = result["tasks"]["sums"]
    assert (task["type"], task["problems"], task["max_tokens"]) == ("math", 5, 6)
    assert "<|im_start|>user\n{question}<|im_end|>" in task["prompt_template"]
    assert "<|im_start|>user\nWhat is 1 + 1?<|im_end|>" in task["example_prompt"]
    assert result["split"] == "sums"
    assert "tokens_scored" not in result
    path = runs / "tiny" / "eval" / result["completions"]
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert {(line["task"], line["key"], line["depth"]) for line in lines} == {
        ("sums", str(key), depth) for key in range(1, 6) for depth in (1, 3)
    }
    content = path.read_bytes()
    lines_kept = content.splitlines(keepends=True)
    path.write_bytes(b"".join(lines_kept[:6]) + lines_kept[6][:20])
    num_generated: list[int] = []

    def counting(*arguments: object, **options: object) -> object:
        num_generated.append(len(arguments[2]))  # type: ignore[arg-type]
        return complete(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("loopkit.evaluation.generation.completions.complete", counting)
    assert json.loads(evaluate(*words)) == result
    assert sum(num_generated) == 4, "only the missing and the truncated generations are generated again"
    assert sorted(path.read_bytes().splitlines()) == sorted(content.splitlines())
    report = (runs / "tiny" / "report.md").read_text()
    assert "## Evaluation on sums" in report
    assert "sums, 5 generations at each depth" in report


def test_changed_options_give_a_new_result(evaluate: Eval, runs: Path) -> None:
    words = ["--task", "math", *task_settings(runs, "math", "limit=1"), "--depths", "2", "--json"]
    first = json.loads(evaluate(*words))
    path = runs / "tiny" / "eval" / first["completions"]
    num_lines = len(path.read_text().splitlines())
    evaluate(*words, "--set", "evaluate.tasks.math.template=plain")
    evaluate(*words, "--dtype", "bf16_autocast")
    evaluate(*words)
    assert len(path.read_text().splitlines()) == num_lines + 2
    assert len(list((runs / "tiny" / "eval").glob("step-*-math-*.json"))) == 3


def test_the_table_shows_every_task(evaluate: Eval, runs: Path) -> None:
    words = [word for name in ("a", "b") for word in task_settings(runs, name, "limit=1")]
    text = evaluate("--task", "a=math", "--task", "b=math", *words, "--depths", "1")
    assert all(word in text for word in ("accuracy", "unfinished", "unparsed"))
    assert "a, 1 generations at each depth; b, 1 generations at each depth" in text


def test_missing_tasks_and_files_are_reported(evaluate: Eval) -> None:
    assert "no task is called 'maths'" in evaluate("--task", "maths", code=2)
    missing = evaluate("--task", "math", "--set", "evaluate.tasks.math.path=nowhere.jsonl", code=2)
    assert "nowhere.jsonl does not exist; set the path of the task" in missing
    assert "data.source.path" in evaluate("--task", "perplexity", code=2), "a task that scores text needs the data"
