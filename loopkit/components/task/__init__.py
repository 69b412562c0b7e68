"""What an evaluation asks of a model, and how answers become figures.

A task only asks and marks. Evaluation owns batching, depths and caches: every request is answered once per depth, so a
task never sees a model and needs no torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Corpus:
    """A request: the likelihood of every scored token of the split under evaluation.

    Args:
        key: Name of the request, unique within the task.
        greedy: Whether to count, too, where the scored token is the likeliest; it costs the logits a second time.
        by_example: Whether each sequence of the split is answered, and marked, by itself: so the answers fall into the
            groups that the source gives its documents. Words and bytes are known of the whole alone.
    """

    key: str = "corpus"
    greedy: bool = False
    by_example: bool = False


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
        group: Group of the sequence, where it is one that has a group.
    """

    nll: float
    tokens: int
    words: int | None = None
    bytes: int | None = None
    sequences: int | None = None
    right: int | None = None
    exact: int | None = None
    group: str | None = None


@dataclass(frozen=True)
class Generate:
    """A request: go on from a prompt, taking the likeliest token each time.

    Args:
        key: Name of the request, unique within the task.
        prompt: The whole text that the model is given.
        max_tokens: Most tokens of the answer.
        stop: Strings that end it, beside the tokenizer's end of text.
        group: What figures are reported for, beside those of all requests, such as a difficulty.
    """

    key: str
    prompt: str
    max_tokens: int
    stop: tuple[str, ...] = ()
    group: str | None = None


@dataclass(frozen=True)
class Completion:
    """The answer to a ``Generate``.

    Args:
        text: What the model added, up to where it stopped and without what stopped it.
        num_tokens: Tokens that it made.
        finished: Whether it came to an end by itself, not by the limit of tokens or of the model's positions.
    """

    text: str
    num_tokens: int
    finished: bool


Request = Corpus | Generate
Answer = Likelihood | Completion


class Task(ABC):
    """A question put to a model at every depth.

    The figures of ``total`` are merged into each depth of the result; those of a task that has texts generated stand
    there under the task's name, because several of them may be asked at once. Where answers have groups, ``total`` is
    also called with the marks of each group, and those figures stand under ``groups``.

    All requests of a task are of one kind: ``Corpus`` for likelihoods on the evaluated split, or ``Generate`` for
    completions. A task of ``Generate`` requests is registered with ``generates=True``.
    """

    @abstractmethod
    def requests(self) -> Iterator[Request]:
        """Everything to be answered, each with a key of its own."""

    def facts(self) -> dict[str, Any]:
        """What a reader of the result must know of the questions, as plain JSON values."""
        return {}

    @abstractmethod
    def mark(self, request: Request, answer: Answer) -> dict[str, float]:
        """The figures of one answer, at one depth."""

    def group(self, request: Request, answer: Answer) -> str | None:
        """The group that an answer belongs to; ``None`` for none. By default the one that source or request gives."""
        return request.group if isinstance(request, Generate) else getattr(answer, "group", None)

    @abstractmethod
    def total(self, marks: Sequence[dict[str, float]]) -> dict[str, float]:
        """The figures of the task from the marks of all requests, at one depth.

        A figure that cannot be formed is left out, never zero. One that is not finite is reported as such.
        """


from loopkit.components.task.perplexity import Perplexity as Perplexity  # noqa: E402  (it needs the contract above)
