"""What an evaluation asks of a model, and how answers become figures.

A task only asks and marks. Evaluation owns batching, depths and caches: every request is answered once per depth, so a
task never sees a model and needs no torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Corpus:
    """A request: the likelihood of every scored token of the split under evaluation.

    Args:
        key: Name of the request, unique within the task.
        greedy: Whether to count, too, where the scored token is the likeliest; it costs the logits a second time.
    """

    key: str = "corpus"
    greedy: bool = False


@dataclass(frozen=True)
class Likelihood:
    """The answer to a ``Corpus``.

    Args:
        nll: Negative log-likelihood summed over the tokens, in nats, accumulated in fp64.
        tokens: Number of tokens scored.
        words: Number of words that those tokens spell, or ``None`` where the data has no words.
        bytes: Number of UTF-8 bytes that those tokens spell, or ``None`` where the data has none.
        sequences: Number of sequences that have a scored token; this and the next two where ``greedy`` was asked.
        right: Scored tokens that are the likeliest ones, given everything before them.
        exact: Sequences whose every scored token is: those that greedy decoding would have given whole.
    """

    nll: float
    tokens: int
    words: int | None = None
    bytes: int | None = None
    sequences: int | None = None
    right: int | None = None
    exact: int | None = None


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


from loopkit.components.task.perplexity import Perplexity as Perplexity  # noqa: E402  (it needs the contract above)
