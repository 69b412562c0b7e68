"""Exact match of answers under greedy decoding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loopkit.components.task import Answer, Corpus, Likelihood, Request, Task
from loopkit.registry import register


@register("task", "exact_match", paper="arXiv:2605.26733", figures={"exact_match", "token_accuracy"})
class ExactMatch(Task):
    """Share of the examples that greedy decoding answers exactly, at every depth from one pass.

        exact_match    = answers in which every token is the most likely one / answers
        token_accuracy = answer tokens that are the most likely ones / answer tokens, under teacher forcing

    Greedy decoding reproduces an answer if and only if, under teacher forcing, each of its tokens is the most likely
    one, including the token that ends it; nothing is decoded. For data whose examples have a learned part, or targets
    at the positions of their tokens, which are predicted all at once. If documents have groups, such as a difficulty,
    each group has these figures too.

    Paper:
        STARS decodes as many tokens as the answer has and compares numbers; here the end of the answer also counts.
    """

    def requests(self) -> Iterator[Request]:
        yield Corpus(greedy=True, by_example=True)

    def mark(self, request: Request, answer: Answer) -> dict[str, float]:
        assert isinstance(answer, Likelihood)
        counts = {"exact": answer.exact, "right": answer.right, "sequences": answer.sequences, "tokens": answer.tokens}
        return {name: float(count) for name, count in counts.items() if count is not None}

    def total(self, marks: Sequence[dict[str, float]]) -> dict[str, float]:
        sums = {name: sum(mark[name] for mark in marks) for name in ("exact", "right", "sequences", "tokens")}
        if not sums["sequences"]:
            return {}
        return {
            "exact_match": sums["exact"] / sums["sequences"],
            "token_accuracy": sums["right"] / sums["tokens"],
        }
