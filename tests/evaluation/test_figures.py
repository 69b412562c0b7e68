"""Figures of all completions, and of each group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loopkit.components.task import Answer, Completion, Generate, Likelihood, Perplexity, Request, Task
from loopkit.components.task.exact_match import ExactMatch
from loopkit.evaluation.figures import compute_task_figures, compute_totals

EXAMPLES = [
    Likelihood(1.0, 2, sequences=1, right=2, exact=1, group="9 empty"),
    Likelihood(1.0, 2, sequences=1, right=1, exact=0, group="10 empty"),
    Likelihood(1.0, 2, sequences=1, right=2, exact=1, group="10 empty"),
    Likelihood(1.0, 2, sequences=1, right=0, exact=0),
]
WHOLE = Likelihood(4.0, 8, sequences=4, right=5, exact=2)


def test_examples_are_marked_in_groups() -> None:
    result = compute_task_figures({"exact_match": ExactMatch(), "perplexity": Perplexity()}, WHOLE, EXAMPLES)
    assert (result["exact_match"], result["token_accuracy"], result["loss"]) == (0.5, 5 / 8, 0.5)
    assert result["groups"] == {
        "9 empty": {"exact_match": 1.0, "token_accuracy": 1.0},
        "10 empty": {"exact_match": 0.5, "token_accuracy": 0.75},
    }
    assert list(result["groups"]) == ["9 empty", "10 empty"]


def test_tasks_without_groups_have_no_group_figures() -> None:
    assert "groups" not in compute_task_figures({"exact_match": ExactMatch()}, WHOLE, EXAMPLES[3:])


class Kept(Task):
    """The share of completions that end, grouped by their length."""

    scores = False

    def requests(self) -> Iterator[Request]:
        yield Generate("a", "prompt", 9, group="of the request")

    def group(self, request: Request, answer: Answer) -> str | None:
        assert isinstance(answer, Completion)
        return "long" if len(answer.text) > 3 else super().group(request, answer)

    def mark(self, request: Request, answer: Answer) -> dict[str, float]:
        assert isinstance(answer, Completion)
        return {"finished": float(answer.finished)}

    def total(self, marks: Sequence[dict[str, float]]) -> dict[str, float]:
        return {"finished": sum(mark["finished"] for mark in marks) / len(marks)}


def test_a_task_may_choose_the_groups() -> None:
    task = Kept()
    (request,) = task.requests()
    answers = [Completion("long one", 2, True), Completion("", 0, False)]
    result = compute_totals(task, [(task.group(request, answer), task.mark(request, answer)) for answer in answers])
    assert result == {"finished": 0.5, "groups": {"long": {"finished": 1.0}, "of the request": {"finished": 0.0}}}
