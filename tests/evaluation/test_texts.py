"""Tasks that have texts written: at every depth, in batches, beside tasks that score text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from loopkit.components.task import Answer, Completion, Generate, Request, Task
from loopkit.evaluation import evaluate
from loopkit.evaluation.completion_file import CompletionFile
from loopkit.evaluation.generation import Writer, ask, model_digest
from loopkit.inference import complete
from tests.evaluation.conftest import Case

PROMPTS = [
    "The tower of",
    "The river of the north",
    "council",
    "The tower",
    "of the island was",
]


class Echo(Task):
    """Counts the letters that a model adds."""

    scores = False

    def __init__(self, prompts: Sequence[str] = PROMPTS, stops: Sequence[tuple[str, ...]] = ((),)) -> None:
        self.prompts, self.stops = prompts, stops

    def requests(self) -> Iterator[Request]:
        for number, prompt in enumerate(self.prompts):
            yield Generate(f"p{number}", prompt, 4 + number, self.stops[number % len(self.stops)])

    def facts(self) -> dict[str, Any]:
        return {"problems": len(self.prompts)}

    def mark(self, request: Request, answer: Answer) -> dict[str, float]:
        assert isinstance(answer, Completion)
        return {"letters": float(len(answer.text)), "tokens": float(answer.num_tokens)}

    def total(self, marks: Sequence[dict[str, float]]) -> dict[str, float]:
        return {name: sum(mark[name] for mark in marks) for name in marks[0]} if marks else {}


@dataclass(frozen=True)
class Chosen:
    """A task as a recipe would choose it."""

    task: Task
    target: type[Task] = Echo

    def build(self) -> Task:
        return self.task

    def plain(self) -> dict[str, Any]:
        return {"type": "echo"}


@pytest.fixture(scope="module")
def case(make_case: Callable[..., Case]) -> Case:
    made = make_case("model.position=rope")
    made.model.eval()
    return made


def settings(case: Case, **tasks: Any) -> Any:
    return replace(case.recipe.evaluate, tasks=tasks, probes={}, batch=2)


def written(case: Case, tasks: Any, **options: Any) -> Any:
    return evaluate(case.model, None, settings(case, **tasks), [1, 3], tokenizer=case.prepared.tokenizer, **options)


def test_texts_are_those_of_their_prompts_alone_at_every_depth(case: Case, tmp_path: Path) -> None:
    found = written(case, {"echo": Chosen(Echo())}, completions=tmp_path / "texts.jsonl").to_json()
    file = CompletionFile(tmp_path / "texts.jsonl")
    assert len(file) == 10
    for row in found["depths"]:
        alone = [
            complete(case.model, case.prepared.tokenizer, [prompt], depth=row["depth"], max_tokens=4 + number)[0]
            for number, prompt in enumerate(PROMPTS)
        ]
        texts = {text for (_, _, depth, _), text in file._known.items() if depth == row["depth"]}
        assert {text.text for text in alone} == {text.text for text in texts}
        assert row["echo"]["letters"] == sum(len(text.text) for text in alone)
    assert found["tasks"] == {"echo": {"type": "echo", "problems": 5, "example_prompt": PROMPTS[0]}}
    assert (found["split"], found["completions"], found["batch"]) == ("echo", "texts.jsonl", 2)


def test_requests_that_stop_differently_are_not_mixed(case: Case) -> None:
    free = written(case, {"echo": Chosen(Echo())}).depths[0]["echo"]
    stopped = written(case, {"echo": Chosen(Echo(stops=((), ("e", "o", "n"))))}).depths[0]["echo"]
    assert stopped["letters"] <= free["letters"]
    one = Echo(PROMPTS[1:2], stops=(("e", "o", "n"),))
    assert written(case, {"echo": Chosen(one)}).depths[0]["echo"]["letters"] <= stopped["letters"]


def test_scores_and_texts_stand_in_one_result(case: Case) -> None:
    perplexity = case.recipe.evaluate.tasks["perplexity"]
    asked = settings(case, perplexity=perplexity, echo=Chosen(Echo()))
    both = evaluate(case.model, case.prepared, asked, [1, 3]).to_json()
    scored = evaluate(case.model, case.prepared, settings(case, perplexity=perplexity), [1, 3]).to_json()
    for row, plain in zip(both["depths"], scored["depths"], strict=True):
        assert {name: row[name] for name in plain} == plain
        assert row["echo"]["tokens"] > 0
    assert both["split"] == "validation"
    assert "tasks" not in scored
    with pytest.raises(ValueError, match="a task and a figure are both called 'loss'"):
        evaluate(case.model, case.prepared, settings(case, perplexity=perplexity, loss=Chosen(Echo())), [1])


def test_what_is_needed_is_asked_for(case: Case) -> None:
    with pytest.raises(ValueError, match="there is no text to score"):
        evaluate(case.model, None, settings(case, perplexity=case.recipe.evaluate.tasks["perplexity"]), [1])
    with pytest.raises(ValueError, match="without the model's tokenizer"):
        evaluate(case.model, None, settings(case, echo=Chosen(Echo())), [1])


def test_prompts_that_do_not_fit_are_counted_before_anything_runs(make_case: Callable[..., Case]) -> None:
    case = make_case("model.position=learned")
    limit = case.recipe.data.length
    tokenizer = case.prepared.tokenizer
    long = "The tower of the north " * limit
    length = len(tokenizer.encode([long])[0])
    message = rf"task echo: 1 of 2 prompts do not fit: the longest has {length} tokens, and the model has {limit} pos"
    with pytest.raises(ValueError, match=message):
        ask({"echo": Echo(["The", long])}, tokenizer, case.model)
    notes = evaluate(case.model, None, settings(case, echo=Chosen(Echo())), [1], tokenizer=tokenizer).notes
    assert notes == []
    wide = Echo(["The"])
    wide.requests = lambda: iter([Generate("a", "The", 1000)])  # type: ignore[method-assign]
    notes = evaluate(case.model, None, settings(case, echo=Chosen(wide)), [1], tokenizer=tokenizer).notes
    assert notes == [f"the model's {limit} positions end texts of echo before max_tokens: those count as unfinished"]


def test_texts_of_other_weights_are_not_taken_for_these(case: Case) -> None:
    before = model_digest(case.model)
    weight = next(case.model.parameters())
    with torch.no_grad():
        weight[0, 0] += 1e-3
    assert model_digest(case.model) != before
    with torch.no_grad():
        weight[0, 0] -= 1e-3
    file, seen = CompletionFile(None), []
    tokenizer = case.prepared.tokenizer
    for _ in range(2):
        asked = ask({"echo": Echo()}, tokenizer, case.model)
        case.model.eval()
        writer = Writer(case.model, tokenizer, "fp32", 2, file, lambda *told: seen.append(told))
        writer.figures(asked, [1])
    assert [done for _, _, done, _ in seen] == [0, 1, 2, 3, 4, 5, 5]
