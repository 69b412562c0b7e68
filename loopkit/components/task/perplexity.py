"""How surprised a model is by text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from loopkit.components.task import Answer, Corpus, Likelihood, Request, Task
from loopkit.registry import register


@register("task", "perplexity", figures={"loss", "token_ppl", "word_ppl", "bits_per_byte"})
class Perplexity(Task):
    """How surprised the model is by the text, per token, per word and per byte.

        loss          = nll / tokens                nats per token
        token_ppl     = exp(nll / tokens)           comparable only between models of one tokenizer
        word_ppl      = exp(nll / words)
        bits_per_byte = nll / (ln 2 * bytes)        comparable between tokenizers that lose no text

    ``nll`` is summed over the scored tokens, and words and bytes are those which these tokens spell.
    """

    def requests(self) -> Iterator[Request]:
        yield Corpus()

    def mark(self, request: Request, answer: Answer) -> dict[str, float]:
        assert isinstance(answer, Likelihood)
        known = {"nll": answer.nll, "tokens": answer.tokens, "words": answer.words, "bytes": answer.bytes}
        return {name: value for name, value in known.items() if value is not None}

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
    """The exponential, infinite where a float cannot hold it: an untrained depth may cost hundreds of nats."""
    try:
        return math.exp(nats)
    except OverflowError:
        return math.inf
