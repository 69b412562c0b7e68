"""Loss and perplexity of text, per token, word and byte."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from loopkit.components.task import Answer, Corpus, Likelihood, Request, Task
from loopkit.registry import register


@register("task", "perplexity", figures={"loss", "token_ppl", "word_ppl", "bits_per_byte"})
class Perplexity(Task):
    """Loss and perplexity of the text, per token, per word and per byte.

        loss          = nll / tokens                nats per token
        token_ppl     = exp(nll / tokens)           comparable only between models with the same tokenizer
        word_ppl      = exp(nll / words)
        bits_per_byte = nll / (ln 2 * bytes)        comparable between lossless tokenizers

    ``nll`` is summed over the scored tokens; words and bytes are those of the text of these tokens.
    """

    def requests(self) -> Iterator[Request]:
        yield Corpus()

    def mark(self, request: Request, answer: Answer) -> dict[str, float]:
        assert isinstance(answer, Likelihood)
        values = {"nll": answer.nll, "tokens": answer.tokens, "words": answer.words, "bytes": answer.bytes}
        return {name: value for name, value in values.items() if value is not None}

    def total(self, marks: Sequence[dict[str, float]]) -> dict[str, float]:
        nll = math.fsum(mark["nll"] for mark in marks)
        counts = {
            unit: sum(mark[unit] for mark in marks)
            for unit in ("tokens", "words", "bytes")
            if all(mark.get(unit) for mark in marks)
        }
        figures = {}
        if "tokens" in counts:
            figures["loss"] = nll / counts["tokens"]
            figures["token_ppl"] = _exp(figures["loss"])
        if "words" in counts:
            figures["word_ppl"] = _exp(nll / counts["words"])
        if "bytes" in counts:
            figures["bits_per_byte"] = nll / (math.log(2) * counts["bytes"])
        return figures


def _exp(nats: float) -> float:
    """Exponential; infinite on overflow, as the loss of an untrained depth may be hundreds of nats."""
    try:
        return math.exp(nats)
    except OverflowError:
        return math.inf
