"""What an evaluation asks of a model, and how answers become figures.

A task only asks and marks. Evaluation owns batching, depths and caches: every request is answered once per depth, so a
task never sees a model and needs no torch.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loopkit.registry import register


@dataclass(frozen=True)
class Corpus:
    """A request: the likelihood of every scored token of the split under evaluation.

    Args:
        key: Name of the request, unique within the task.
    """

    key: str = "corpus"


@dataclass(frozen=True)
class Likelihood:
    """The answer to a ``Corpus``.

    Args:
        nll: Negative log-likelihood summed over the tokens, in nats, accumulated in fp64.
        tokens: Number of tokens scored.
        words: Number of words that those tokens spell, or ``None`` where the data has no words.
        bytes: Number of UTF-8 bytes that those tokens spell, or ``None`` where the data has none.
    """

    nll: float
    tokens: int
    words: int | None = None
    bytes: int | None = None


Request = Corpus
Answer = Likelihood


class Task(ABC):
    """A question put to a model at every depth. The figures of ``total`` are merged into each depth of the result."""

    @abstractmethod
    def requests(self) -> Iterator[Request]:
        """Everything to be answered, each with a key of its own."""

    @abstractmethod
    def mark(self, request: Request, answer: Answer) -> dict[str, float]:
        """The figures of one answer, at one depth."""

    @abstractmethod
    def total(self, marks: Sequence[dict[str, float]]) -> dict[str, float]:
        """The figures of the task from the marks of all requests, at one depth.

        A figure that cannot be formed is left out, never zero. One that is not finite is reported as such.
        """


@register("task", "perplexity")
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
