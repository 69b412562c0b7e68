"""Tasks that generate completions: at every depth, in batches, with tasks that score text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from loopkit.components.task import Answer, Completion, Generate, Request, Task
from loopkit.evaluation import EvaluationSettings, evaluate
from loopkit.evaluation.generation.completion_file import CompletionFile
from loopkit.evaluation.generation.completions import CompletionGenerator, build_generation_tasks, model_digest
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
    traits: ClassVar[dict[str, bool]] = {"generates": True}

    def build(self) -> Task:
        return self.task

    def plain(self) -> dict[str, Any]:
        return {"type": "echo"}


@pytest.fixture(scope="module")
def case(make_case: Callable[..., Case]) -> Case:
    case = make_case("model.position=rope")
    case.model.eval()
    return case


def settings(case: Case, depths: Sequence[int] = (1, 3), **tasks: Any) -> EvaluationSettings:
    config = replace(case.recipe.evaluate, tasks=tasks, probes={}, batch=2)
    return EvaluationSettings(config=config, depths=depths)


def generate_results(case: Case, tasks: Any, **options: Any) -> Any:
    return evaluate(case.model, None, settings(case, **tasks), tokenizer=case.prepared.tokenizer, **options)


def test_completions_do_not_depend_on_the_batch(case: Case, tmp_path: Path) -> None:
    result = generate_results(case, {"echo": Chosen(Echo())}, completions=tmp_path / "completions.jsonl").to_json()
    file = CompletionFile(tmp_path / "completions.jsonl")
    assert len(file) == 10
    for row in result["depths"]:
        expected = [
            complete(case.model, case.prepared.tokenizer, [prompt], depth=row["depth"], max_tokens=4 + number)[0]
            for number, prompt in enumerate(PROMPTS)
        ]
        stored = {completion for (_, _, depth, _), completion in file._completions.items() if depth == row["depth"]}
        assert {completion.text for completion in expected} == {completion.text for completion in stored}
        assert row["echo"]["letters"] == sum(len(completion.text) for completion in expected)
    assert result["tasks"] == {"echo": {"type": "echo", "problems": 5, "example_prompt": PROMPTS[0]}}
    assert (result["split"], result["completions"], result["batch"]) == ("echo", "completions.jsonl", 2)


def test_each_request_keeps_its_stop_strings(case: Case) -> None:
    free = generate_results(case, {"echo": Chosen(Echo())}).depths[0]["echo"]
    stopped = generate_results(case, {"echo": Chosen(Echo(stops=((), ("e", "o", "n"))))}).depths[0]["echo"]
    assert stopped["letters"] <= free["letters"]
    one = Echo(PROMPTS[1:2], stops=(("e", "o", "n"),))
    assert generate_results(case, {"echo": Chosen(one)}).depths[0]["echo"]["letters"] <= stopped["letters"]


def test_scores_and_completions_share_a_result(case: Case) -> None:
    perplexity = case.recipe.evaluate.tasks["perplexity"]
    both = evaluate(case.model, case.prepared, settings(case, perplexity=perplexity, echo=Chosen(Echo()))).to_json()
    scored = evaluate(case.model, case.prepared, settings(case, perplexity=perplexity)).to_json()
    for row, plain in zip(both["depths"], scored["depths"], strict=True):
        assert {name: row[name] for name in plain} == plain
        assert row["echo"]["tokens"] > 0
    assert both["split"] == "validation"
    assert "tasks" not in scored
    with pytest.raises(ValueError, match="a task and a figure are both called 'loss'"):
        evaluate(case.model, case.prepared, settings(case, [1], perplexity=perplexity, loss=Chosen(Echo())))


def test_missing_data_or_tokenizer_is_an_error(case: Case) -> None:
    with pytest.raises(ValueError, match="need data, but prepared is None"):
        evaluate(case.model, None, settings(case, [1], perplexity=case.recipe.evaluate.tasks["perplexity"]))
    with pytest.raises(ValueError, match="needs the model's tokenizer"):
        evaluate(case.model, None, settings(case, [1], echo=Chosen(Echo())))


def test_prompts_beyond_the_positions_are_rejected(make_case: Callable[..., Case]) -> None:
    case = make_case("model.position=learned")
    limit = case.recipe.data.length
    tokenizer = case.prepared.tokenizer
    long = "The tower of the north " * limit
    length = len(tokenizer.encode([long])[0])
    message = rf"task echo: 1 of 2 prompts too long\. The longest has {length} tokens, and"
    with pytest.raises(ValueError, match=message):
        build_generation_tasks({"echo": Echo(["The", long])}, tokenizer, case.model)
    notes = evaluate(case.model, None, settings(case, [1], echo=Chosen(Echo())), tokenizer=tokenizer).notes
    assert notes == []
    wide = Echo(["The"])
    wide.requests = lambda: iter([Generate("a", "The", 1000)])  # type: ignore[method-assign]
    notes = evaluate(case.model, None, settings(case, [1], echo=Chosen(wide)), tokenizer=tokenizer).notes
    assert notes == [
        f"the model's {limit} positions end completions of echo before max_tokens: those count as unfinished"
    ]


def test_digest_depends_on_every_weight(case: Case) -> None:
    before = model_digest(case.model)
    weight = next(case.model.parameters())
    with torch.no_grad():
        weight[0, 0] += 1e-3
    assert model_digest(case.model) != before
    with torch.no_grad():
        weight[0, 0] -= 1e-3
    file, calls = CompletionFile(None), []
    tokenizer = case.prepared.tokenizer
    for _ in range(2):
        tasks = build_generation_tasks({"echo": Echo()}, tokenizer, case.model)
        case.model.eval()
        generator = CompletionGenerator(case.model, tokenizer, "fp32", 2, file, lambda *args: calls.append(args))
        generator.figures(tasks, [1])
    assert [done for _, _, done, _ in calls] == [0, 1, 2, 3, 4, 5, 5]
