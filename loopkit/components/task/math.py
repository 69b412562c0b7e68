"""Mathematics problems: completions whose final answer is compared with math-verify."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import PositiveInt

from loopkit.components.chat import CLOSE, chatml
from loopkit.components.task import Answer, Completion, Generate, Request, Task
from loopkit.components.task.answers import find_answer
from loopkit.components.task.judge import Grade, Judge
from loopkit.components.task.problems import MathProblem, read_problems
from loopkit.errors import UserError
from loopkit.registry import register

_STOPS = {"chatml": (CLOSE,), "plain": ("\nQuestion:",)}


@register("task", "math", paper="arXiv:2605.26733", packages={"math_verify": "loopkit[eval]"})
class Math(Task):
    r"""Mathematics problems: the model writes a solution, and its answer is compared with math-verify.

        accuracy   = correct answers / problems
        unfinished = solutions truncated by max_tokens or by the model's positions / problems
        unparsed   = solutions without an answer that can be parsed / problems

    The answer is extracted from the solution by the first of these rules that matches, at its last match: the content
    of \boxed{}; the text after the marker on its line; the text after "the answer is"; a formula between dollars; the
    whole text, if it is a formula; a number. An unfinished solution may be correct.

    Args:
        dataset: Problem set: gsm8k (test, 1,319), math500, svamp, asdiv or amc23.
        path: Local .jsonl, .json or (asdiv) .xml file, instead of the hub.
        split: Split on the hub; null means the one that is usually reported.
        revision: Commit, branch or tag on the hub; null means the newest.
        limit: Use the first N problems; null means all.
        template: chatml is a conversation with a system prompt; plain is Question: and Answer:.
        system: System prompt of chatml; empty means none.
        instruction: Text appended to every question; empty means none.
        max_tokens: Maximum number of tokens of a solution.
        stop: Strings that end a solution; null means those of the template.
        marker: Text before the answer in a solution without a box.

    Paper: evaluated without examples, in bf16, with this system prompt and 2,048 tokens.
    """

    scores = False

    def __init__(
        self,
        *,
        dataset: Literal["gsm8k", "math500", "svamp", "asdiv", "amc23"] = "gsm8k",
        path: Path | None = None,
        split: str | None = None,
        revision: str | None = None,
        limit: PositiveInt | None = None,
        template: Literal["chatml", "plain"] = "chatml",
        system: str = "You are a helpful assistant that can assist users with reasoning.",
        instruction: str = "",
        max_tokens: PositiveInt = 2048,
        stop: list[str] | None = None,
        marker: str = "####",
    ) -> None:
        if path is not None and (split is not None or revision is not None):
            raise UserError(
                "task math: split and revision apply to the hub, but path is a local file; remove them or path"
            )
        if not marker:
            raise UserError("task math: marker is empty; set the text that precedes an answer, such as ####")
        self.dataset, self.path, self.split, self.revision = dataset, path, split, revision
        self.limit, self.template, self.system, self.instruction = limit, template, system, instruction
        self.max_tokens, self.marker = max_tokens, marker
        self.stop = _STOPS[template] if stop is None else tuple(stop)
        self._judge = Judge()
        self._problems: dict[str, MathProblem] = {}

    def requests(self) -> Iterator[Request]:
        self._judge.start()  # report a missing package before hours of generation
        for problem in self.problems():
            yield Generate(problem.key, self.prompt(problem.question), self.max_tokens, self.stop)

    def problems(self) -> list[MathProblem]:
        """Load the problems on the first call.

        Raises:
            ValueError: If the data is missing or has another form.
            OSError: If the file or the hub cannot be read.
        """
        if not self._problems:
            for problem in read_problems(self.dataset, self.path, self.split, self.revision):
                if self.limit is not None and len(self._problems) >= self.limit:
                    break
                self._problems[problem.key] = problem
        return list(self._problems.values())

    def prompt(self, question: str) -> str:
        """Format a question with the template."""
        question = question.strip() + (f"\n\n{self.instruction}" if self.instruction else "")
        if self.template == "plain":
            return f"Question: {question}\nAnswer:"
        system = [("system", self.system)] if self.system else []
        return chatml([*system, ("user", question)], open_turn=True)

    def facts(self) -> dict[str, Any]:
        return {
            "problems": len(self.problems()),
            "prompt_template": self.prompt("{question}"),
            "max_tokens": self.max_tokens,
            "stop": list(self.stop),
        }

    def mark(self, request: Request, answer: Answer) -> dict[str, float]:
        assert isinstance(answer, Completion)
        self.problems()
        final = find_answer(answer.text, self.marker)
        grade = Grade() if final is None else self._judge.compare(self._problems[request.key].answer, final)
        return {
            "correct": float(grade.correct),
            "unfinished": float(not answer.finished),
            "unparsed": float(not grade.parsed),
        }

    def total(self, marks: Sequence[dict[str, float]]) -> dict[str, float]:
        if not marks:
            return {}
        names = {"accuracy": "correct", "unfinished": "unfinished", "unparsed": "unparsed"}
        return {name: sum(mark[key] for mark in marks) / len(marks) for name, key in names.items()}
