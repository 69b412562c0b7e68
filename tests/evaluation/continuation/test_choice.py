"""Multiple choice at every depth: equal to a separate pass for each option and depth, with the core calls of one."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from loopkit.errors import UserError
from loopkit.evaluation import EvaluationSettings, evaluate
from loopkit.evaluation.continuation.encode import build_continuation, encode_continuations
from loopkit.evaluation.depth_sweep import counted_core_calls
from loopkit.loop import Batch, Loops
from loopkit.registry import Spec
from tests.evaluation.conftest import Case

WORDS = ["the", "tower", "river", "council", "north", "island", "was", "old", "quiet", "four", "ninety", "of", "its"]
DEPTHS = range(1, 9)


def questions(count: int) -> list[dict[str, Any]]:
    """Random questions of two to five options; every tenth has a group of equal options."""
    rng = random.Random(3)

    def words(most: int) -> str:
        return " ".join(rng.choices(WORDS, k=rng.randint(1, most)))

    rows = []
    for number in range(count):
        options = [words(4) for _ in range(rng.randint(2, 5))]
        if number % 10 == 0:
            options[-1] = options[0]
        rows.append({"question": f"{words(8)} ", "options": options, "label": rng.randrange(len(options))})
    return rows


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("choice") / "questions.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in questions(200)))
    return path


@pytest.fixture(scope="module")
def case(make_case: Callable[..., Case]) -> Case:
    case = make_case("model.position=rope")
    case.model.eval()
    return case


def settings(case: Case, depths: Sequence[int], length: int = 128, **tasks: Spec) -> EvaluationSettings:
    config = replace(case.recipe.evaluate, tasks=tasks, probes={}, batch=16)
    return EvaluationSettings(config=config, depths=list(depths), length=length)


def choice(path: Path, **options: Any) -> Spec:
    return Spec("task", "choice", {"path": path, **options})


def brute_force(case: Case, rows: Sequence[dict[str, Any]], depth: int) -> dict[str, float]:
    """Run every option alone at one depth, and count the questions whose label has the largest likelihood."""
    correct = normalised = 0
    for row in rows:
        losses = []
        for option in row["options"]:
            prompt = row["question"].rstrip()
            ids = case.prepared.tokenizer.encode([f"{prompt} {option}"])[0].astype("int64")
            first = len(case.prepared.tokenizer.encode([prompt])[0])
            tokens = torch.from_numpy(ids)[None]
            with torch.no_grad():
                logits = case.model.run(Batch.of(tokens[:, :-1].contiguous()), Loops.fixed(depth)).logits(depth)
            log_p = logits.double().log_softmax(-1)[0, first - 1 :]
            losses.append(-log_p.gather(1, tokens[0, first:, None]).sum().item())
        lengths = [len(option) for option in row["options"]]
        best = min(range(len(losses)), key=lambda i: losses[i])
        shortest = min(range(len(losses)), key=lambda i: losses[i] / lengths[i])
        correct += best == row["label"]
        normalised += shortest == row["label"]
    return {"accuracy": correct / len(rows), "normalised_accuracy": normalised / len(rows)}


@pytest.mark.parametrize("count", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_every_depth_equals_a_pass_for_each_option(case: Case, file: Path, count: int) -> None:
    """Depths 1 to 8 together take the core calls of depth 8."""
    chosen = settings(case, DEPTHS, mine=choice(file, limit=count))
    with counted_core_calls(case.model) as calls:
        result = evaluate(case.model, None, chosen, tokenizer=case.prepared.tokenizer).to_json()
    with counted_core_calls(case.model) as calls_of_deepest:
        deepest = evaluate(case.model, None, replace(chosen, depths=[8]), tokenizer=case.prepared.tokenizer)
    assert calls[0] == result["core_calls"] <= calls_of_deepest[0] == deepest.core_calls
    assert calls[0] == 8 * result["batches"]
    rows = questions(200)[:count]
    assert {row["mine"]["accuracy"] for row in result["depths"]} != {0.0}
    for row in result["depths"]:
        assert row["mine"] == brute_force(case, rows, row["depth"]), row["depth"]
    assert deepest.depths[0]["mine"] == result["depths"][-1]["mine"]
    assert result["tasks"]["mine"]["questions"] == count


def test_loop_that_depends_on_its_length_runs_each_depth(make_case: Callable[..., Case], file: Path) -> None:
    case = make_case("model.position=rope")
    case.model.eval().depth_free = False
    chosen = settings(case, (1, 3), mine=choice(file, limit=16))
    result = evaluate(case.model, None, chosen, tokenizer=case.prepared.tokenizer)
    assert result.core_calls == (1 + 3) * result.batches
    assert result.passes == "one per depth"
    assert "separate pass" in result.notes[0]


def test_score_and_choice_merge(case: Case, file: Path) -> None:
    """The row of a depth has the loss of the split and the accuracy of each task."""
    tasks = {"a": choice(file, limit=5), "b": choice(file, limit=9)}
    alone = evaluate(case.model, None, settings(case, [1, 2], **tasks), tokenizer=case.prepared.tokenizer)
    both = settings(case, [1, 2], **tasks, perplexity=Spec("task", "perplexity"))
    result = evaluate(case.model, case.prepared, both)
    assert alone.conditions.split == "a-b"
    assert result.conditions.split == "validation"
    for with_loss, row in zip(result.depths, alone.depths, strict=True):
        assert {name: with_loss[name] for name in ("a", "b")} == {name: row[name] for name in ("a", "b")}
        assert "loss" in with_loss
    assert result.core_calls > alone.core_calls
    assert {name: task["questions"] for name, task in result.tasks.items()} == {"a": 5, "b": 9}


def test_long_prompt_loses_its_start_with_a_note(case: Case, tmp_path: Path) -> None:
    row = {"question": "the tower " * 40, "options": ["was", "of"], "label": 0}
    path = tmp_path / "long.jsonl"
    path.write_text(json.dumps(row))
    chosen = settings(case, [1], length=12, mine=choice(path))
    result = evaluate(case.model, None, chosen, tokenizer=case.prepared.tokenizer).to_json()
    assert any("2 of 2 options of mine do not fit the window of 12 tokens" in note for note in result["notes"])
    assert result["tasks"]["mine"]["window"] == 12


def test_window_keeps_the_continuation_whole() -> None:
    item = build_continuation(range(10), 3, 5, "x")
    assert (item.tokens.tolist(), item.num_scored, item.num_dropped) == ([4, 5, 6, 7, 8, 9], 3, 4)
    with pytest.raises(UserError, match="'x' has 6 tokens, and the window of the model has 5"):
        build_continuation(range(10), 6, 5, "'x'")
    with pytest.raises(UserError, match="the prompt of x has no tokens"):
        build_continuation(range(3), 3, 5, "x")
    with pytest.raises(UserError, match="x has no tokens after its prompt"):
        build_continuation(range(3), 0, 5, "x")


def test_blanks_before_an_option_are_scored(case: Case) -> None:
    tokenizer = case.prepared.tokenizer
    both = encode_continuations(tokenizer, [("the tower ", "was"), ("the tower", " was")])
    assert both[0].tokens.tolist() == both[1].tokens.tolist()
    assert both[0].num_scored == both[1].num_scored
