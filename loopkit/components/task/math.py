"""Mathematics problems, answered in words and marked by what the answer is worth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import PositiveInt

from loopkit.components.chat import CLOSE, chatml
from loopkit.components.task import Answer, Completion, Generate, Request, Task
from loopkit.components.task.answers import find_answer
from loopkit.components.task.judge import Judge
from loopkit.components.task.problems import MathProblem, read_problems
from loopkit.errors import UserError
from loopkit.registry import register

_STOPS = {"chatml": (CLOSE,), "plain": ("\nQuestion:",)}


@register("task", "math", paper="arXiv:2605.26733", packages={"math_verify": "loopkit[eval]"}, generates=True)
class Math(Task):
    r"""Mathematics problems: the model writes a solution, and its answer is compared with math-verify.

        accuracy   = right answers / problems
        unfinished = solutions cut off by max_tokens or by the model's positions / problems
        unparsed   = solutions without an answer that can be read / problems

    The answer of a solution is, where there are several the last one of the first kind that is there: what is in
    \boxed{}; what follows the marker on its line; what "the answer is" announces; a formula between dollars; the whole
    text, where it is nothing but a formula; a number. An unfinished solution may be right.

    Args:
        dataset: Which problems: gsm8k (test, 1,319), math500, svamp, asdiv or amc23.
        path: A local .jsonl, .json or (asdiv) .xml file of them, instead of the hub.
        split: Split on the hub; null means the one that the field reports.
        revision: Commit, branch or tag on the hub; null means the newest.
        limit: Ask so many, the first ones; null means all.
        template: chatml is a conversation with a system prompt, plain is Question: and Answer:.
        system: The system prompt of chatml; empty means none.
        instruction: Text put below every question; empty means none.
        max_tokens: Most tokens of a solution.
        stop: Strings that end a solution; null means those of the template.
        marker: What stands before the answer in a solution without a box.

    Paper: evaluated without examples, in bf16, with this system prompt and 2,048 tokens.
    """

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
            raise UserError("task math: split and revision are of the hub, and path is a local file; leave them out")
        if not marker:
            raise UserError("task math: marker cannot be empty; it is what stands before an answer, such as ####")
        self.dataset, self.path, self.split, self.revision = dataset, path, split, revision
        self.limit, self.template, self.system, self.instruction = limit, template, system, instruction
        self.max_tokens, self.marker = max_tokens, marker
        self.stop = _STOPS[template] if stop is None else tuple(stop)
        self._judge = Judge()
        self._problems: dict[str, MathProblem] = {}

    def requests(self) -> Iterator[Request]:
        self._judge.start()  # a missing package is better known before hours of generation
        for problem in self.problems():
            yield Generate(problem.key, self.prompt(problem.question), self.max_tokens, self.stop)

    def problems(self) -> list[MathProblem]:
        """The problems that are asked.

        Raises:
            ValueError: If the data is missing or of another form.
            OSError: If the file or the hub cannot be read.
        """
        if not self._problems:
            for problem in read_problems(self.dataset, self.path, self.split, self.revision):
                if self.limit is not None and len(self._problems) >= self.limit:
                    break
                self._problems[problem.key] = problem
        return list(self._problems.values())

    def prompt(self, question: str) -> str:
        """The text that a model is given."""
        asked = question.strip() + (f"\n\n{self.instruction}" if self.instruction else "")
        if self.template == "plain":
            return f"Question: {asked}\nAnswer:"
        system = [("system", self.system)] if self.system else []
        return chatml([*system, ("user", asked)], open_turn=True)

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
        found = find_answer(answer.text, self.marker)
        verdict = None if found is None else self._judge.compare(self._problems[request.key].answer, found)
        return {
            "correct": float(verdict is not None and verdict.correct),
            "unfinished": float(not answer.finished),
            "unparsed": float(verdict is None or not verdict.parsed),
        }

    def total(self, marks: Sequence[dict[str, float]]) -> dict[str, float]:
        if not marks:
            return {}
        names = {"accuracy": "correct", "unfinished": "unfinished", "unparsed": "unparsed"}
        return {name: sum(mark[key] for mark in marks) / len(marks) for name, key in names.items()}
