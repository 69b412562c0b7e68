"""A task. It needs no torch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from loopkit.components.task import Answer, Corpus, Request, Task
from loopkit.registry import register


@register("task", "template")
class Template(Task):
    """How many times smaller the text becomes when the model compresses it.

    compression = 8 * bytes / (nll / ln 2)
    """

    def requests(self) -> Iterator[Request]:
        yield Corpus()

    def mark(self, request: Request, answer: Answer) -> dict[str, float]:
        if not answer.bytes or not answer.nll:
            return {}
        return {"bits": answer.nll / math.log(2), "bytes": answer.bytes}

    def total(self, marks: Sequence[dict[str, float]]) -> dict[str, float]:
        bits = math.fsum(mark.get("bits", 0.0) for mark in marks)
        size = sum(mark.get("bytes", 0) for mark in marks)
        # a figure that cannot be formed is left out, never zero
        return {"compression": 8 * size / bits} if bits else {}
