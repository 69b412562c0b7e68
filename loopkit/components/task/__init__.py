"""The contract of a task: the requests that an evaluation sends to a model, and the scores of the answers.

A task defines requests and scores answers. Evaluation handles batching, depths and caches, and answers each request
once per depth. A task therefore needs neither a model nor torch.
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
        greedy: Whether to also count the scored tokens that are the most likely ones. Computes the logits twice.
        by_example: Whether each sequence of the split has an answer of its own, so that answers can be grouped by the
            groups of the source's documents. Such answers have no words and bytes.
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
        words: Number of words in those tokens; ``None`` if the data has no words.
        bytes: Number of UTF-8 bytes in those tokens; ``None`` if the data has none.
        sequences: Number of sequences that have a scored token. This and the next two are set if ``greedy`` is.
        right: Number of scored tokens that are the most likely ones, given all tokens before them.
        exact: Number of sequences in which every scored token is: greedy decoding reproduces them.
        group: Group of the sequence; ``None`` if it has none.
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
    """A request: complete a prompt with greedy decoding.

    Args:
        key: Name of the request, unique within the task.
        prompt: The prompt, including its template.
        max_tokens: Maximum number of generated tokens.
        stop: Strings that end the completion, in addition to the tokenizer's end tokens.
        group: Group whose figures are reported separately, such as a difficulty.
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
        text: The generated text, without the stop string or end token.
        num_tokens: Number of generated tokens.
        finished: Whether a stop string or end token ended it, not the limit of tokens or of the model's positions.
    """

    text: str
    num_tokens: int
    finished: bool


@dataclass(frozen=True)
class Choose:
    """A request: the likelihood of every option of a question.

    Args:
        key: Name of the request, unique within the task.
        options: For each option, the prompt and the text that continues it. Blanks at the end of the prompt are scored
            with the continuation.
        group: Group whose figures are reported separately, such as a subject.
    """

    key: str
    options: tuple[tuple[str, str], ...]
    group: str | None = None


@dataclass(frozen=True)
class OptionLikelihoods:
    """The answer to a ``Choose``.

    Args:
        nll: Negative log-likelihood of each continuation given its prompt, summed over its tokens, in nats.
        tokens: Number of scored tokens of each continuation.
    """

    nll: tuple[float, ...]
    tokens: tuple[int, ...]


Request = Corpus | Generate | Choose
Answer = Likelihood | Completion | OptionLikelihoods


class Task(ABC):
    """A task that is evaluated at every depth.

    The figures of ``total`` are merged into each depth of the result; those of a task that does not read the split are
    nested under the task's name, because an evaluation may have several such tasks. If answers have groups, ``total``
    is also called with the marks of each group, and those figures are nested under ``groups``.

    All requests of a task are of one kind: ``Corpus`` for likelihoods on the evaluated split, ``Generate`` for
    completions, or ``Choose`` for likelihoods of options. A task of ``Generate`` requests is registered with
    ``generates=True``, one of ``Choose`` requests with ``chooses=True``.
    """

    @abstractmethod
    def requests(self) -> Iterator[Request]:
        """Yield all requests, each with a unique key."""

    def facts(self) -> dict[str, Any]:
        """Return what a reader of the result must know about the requests, as plain JSON values."""
        return {}

    @abstractmethod
    def mark(self, request: Request, answer: Answer) -> dict[str, float]:
        """Score one answer at one depth."""

    def group(self, request: Request, answer: Answer) -> str | None:
        """Return the group of an answer, or ``None``; by default that of the request or of the source's document."""
        return getattr(answer, "group", None) if isinstance(request, Corpus) else request.group

    @abstractmethod
    def total(self, marks: Sequence[dict[str, float]]) -> dict[str, float]:
        """Compute the figures of the task from the marks of all requests at one depth.

        Omit a figure that is undefined; never return zero for it. Figures that are not finite are reported as such.
        """


from loopkit.components.task.perplexity import Perplexity as Perplexity  # noqa: E402  (imports the contract above)
