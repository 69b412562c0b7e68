"""A task. It does not import torch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from loopkit.components.task import Answer, Corpus, Likelihood, Request, Task
from loopkit.registry import register


@register("task", "template")
class Template(Task):
    """Compression ratio of the text under the model.

    compression = 8 * bytes / (nll / ln 2)
    """

    def requests(self) -> Iterator[Request]:
        yield Corpus()

    def mark(self, request: Request, answer: Answer) -> dict[str, float]:
        if not isinstance(answer, Likelihood) or not answer.bytes or not answer.nll:
            return {}
        return {"bits": answer.nll / math.log(2), "bytes": answer.bytes}

    def total(self, marks: Sequence[dict[str, float]]) -> dict[str, float]:
        bits = math.fsum(mark.get("bits", 0.0) for mark in marks)
        num_bytes = sum(mark.get("bytes", 0) for mark in marks)
        # a value that cannot be computed is absent, never zero
        return {"compression": 8 * num_bytes / bits} if bits else {}
