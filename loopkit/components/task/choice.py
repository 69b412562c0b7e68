"""Multiple choice: the option with the largest likelihood is the answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import PositiveInt

from loopkit.components.task import Answer, Choose, OptionLikelihoods, Request, Task
from loopkit.components.task.questions import Question, read_questions
from loopkit.errors import UserError
from loopkit.registry import register


@register("task", "choice", chooses=True)
class MultipleChoice(Task):
    r"""Multiple-choice questions: the model's answer is the option with the largest likelihood.

        accuracy            = questions with argmin_i nll_i           = label / questions
        normalised_accuracy = questions with argmin_i nll_i / chars_i = label / questions

    ``nll_i`` is the negative log-likelihood of option i after the question, and ``chars_i`` its number of characters,
    so that long options are not at a disadvantage. These are acc and acc_norm of lm-eval, with the same prompts and no
    examples. The first of equal options counts. All depths come from one pass.

    The options of WinoGrande fill a blank, and the text after it is scored; its two accuracies are equal. The questions
    of MMLU name their options, and the letters are scored; each subject is also reported separately.

    Args:
        dataset: Benchmark from the hub, or form of the file at path; null means the form question, options, label.
        path: Local .jsonl or .json file, instead of the hub.
        split: Split on the hub; null means the one that is usually reported.
        revision: Commit, branch or tag on the hub; null means the newest.
        limit: Use the first N questions; null means all.
    """

    def __init__(
        self,
        *,
        dataset: Literal["hellaswag", "arc_easy", "arc_challenge", "piqa", "winogrande", "boolq", "mmlu"] | None = None,
        path: Path | None = None,
        split: str | None = None,
        revision: str | None = None,
        limit: PositiveInt | None = None,
    ) -> None:
        if dataset is None and path is None:
            raise UserError(
                "task choice: set dataset to a benchmark, such as hellaswag, or path to a file of questions"
            )
        if path is not None and (split is not None or revision is not None):
            raise UserError(
                "task choice: split and revision apply to the hub, but path is a local file; remove them or path"
            )
        self.dataset, self.path, self.split, self.revision, self.limit = dataset, path, split, revision, limit
        self._questions: dict[str, Question] = {}

    def requests(self) -> Iterator[Request]:
        for key, question in self.questions().items():
            pairs = zip(question.prompts, question.options, strict=True)
            yield Choose(key, tuple((prompt, _after(prompt) + option) for prompt, option in pairs), question.group)

    def questions(self) -> dict[str, Question]:
        """Load the questions, by key, on the first call.

        Raises:
            UserError: If the data is missing, or a question is malformed.
            OSError: If the file or the hub cannot be read.
        """
        if not self._questions:
            for number, question in enumerate(read_questions(self.dataset, self.path, self.split, self.revision), 1):
                if self.limit is not None and number > self.limit:
                    break
                self._questions[str(number)] = question
        return self._questions

    def facts(self) -> dict[str, Any]:
        return {"questions": len(self.questions())}

    def mark(self, request: Request, answer: Answer) -> dict[str, float]:
        assert isinstance(answer, OptionLikelihoods)
        question = self.questions()[request.key]
        per_character = [nll / len(option) for nll, option in zip(answer.nll, question.options, strict=True)]
        return {
            "correct": float(_least(answer.nll) == question.label),
            "normalised": float(_least(per_character) == question.label),
        }

    def total(self, marks: Sequence[dict[str, float]]) -> dict[str, float]:
        if not marks:
            return {}
        names = {"accuracy": "correct", "normalised_accuracy": "normalised"}
        return {name: sum(mark[key] for mark in marks) / len(marks) for name, key in names.items()}


def _after(prompt: str) -> str:
    """Return the blank between a prompt and an option, unless the prompt ends in one."""
    return "" if prompt[-1].isspace() else " "


def _least(values: Sequence[float]) -> int | None:
    """Return the index of the smallest value; ``None`` if a value is not a number."""
    return None if any(value != value for value in values) else min(range(len(values)), key=values.__getitem__)
