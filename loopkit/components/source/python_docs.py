"""The language reference in Python's help: text that is part of every CPython, without a download."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import ClassVar

from loopkit.components.source import (
    TEST,
    TRAIN,
    VALIDATION,
    Document,
    Source,
    Span,
    Words,
    canonical_split,
    count_lines,
)
from loopkit.components.source.held_out import check_shares
from loopkit.errors import UserError
from loopkit.registry import Fraction, register


@register("source", "python_docs", layout="stream")
class PythonDocs(Source):
    r"""The topics of ``pydoc_data``, one document each; whole topics are held out.

    Topics that are part of a longer one (``if`` in ``compound``) are dropped, so that train contains no validation
    text. About 370 kB remain. The text and its fingerprint differ slightly between Python versions. Words are counted
    as for WikiText: separated by whitespace, plus ends of line.

    Args:
        join: Text between two topics; null for none.
        validation: Share of the characters held out for validation, in whole topics.
        test: Share of the characters held out for test, in whole topics.
    """

    words: ClassVar[Words | None] = "words_and_lines"

    def __init__(self, *, join: str | None = "\n\n", validation: Fraction = 0.1, test: Fraction = 0.05) -> None:
        self.join = join
        self.shares = check_shares(validation, test)

    def fingerprint(self, split: str) -> str:
        texts = [document.text for document in self.documents(split)]
        return hashlib.sha256(json.dumps(["python_docs", texts]).encode()).hexdigest()

    def documents(self, split: str) -> Iterator[Document]:
        split = canonical_split(split)
        topics = self._splits().get(split)
        if topics is None:
            raise UserError(f"python_docs: unknown split {split!r}; choose one of {TRAIN}, {VALIDATION}, {TEST}")
        if not topics:
            raise UserError(f"python_docs: no topic is short enough for the {split} split; raise data.source.{split}")
        for name, text in sorted(topics.items()):
            yield Document((Span(text),), f"{split}:{name}", count_lines(text))

    def _splits(self) -> dict[str, dict[str, str]]:
        topics = drop_repeated(read_topics())
        total = sum(map(len, topics.values()))
        remaining = {split: int(share * total) for split, share in self.shares.items()}
        remaining[TRAIN] = total
        splits: dict[str, dict[str, str]] = {split: {} for split in remaining}
        # ordering by hash is random, and a new topic does not reorder the others
        for name in sorted(topics, key=lambda name: hashlib.sha256(name.encode()).digest()):
            split = next(split for split in (VALIDATION, TEST, TRAIN) if len(topics[name]) <= remaining[split])
            splits[split][name] = topics[name]
            remaining[split] -= len(topics[name])
        return splits


def read_topics() -> Mapping[str, str]:
    """Return the help topics of this Python, by name.

    Raises:
        UserError: If this Python is installed without them.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise UserError(
            "python_docs: this Python is installed without pydoc_data; install its full standard library "
            "(on Debian, package libpython3-stdlib), or choose another data.source"
        ) from error
    return topics


def drop_repeated(topics: Mapping[str, str]) -> dict[str, str]:
    """Drop the topics of which more than half of the text is in longer topics."""
    result: dict[str, str] = {}
    seen: set[str] = set()
    for name, text in sorted(topics.items(), key=lambda item: (-len(item[1]), item[0])):
        paragraphs = [part.strip() for part in re.split(r"\n\s*\n", text) if part.strip()]
        repeated = sum(len(paragraph) for paragraph in paragraphs if paragraph in seen)
        if paragraphs and repeated <= sum(map(len, paragraphs)) / 2:
            result[name] = text
        seen.update(paragraphs)
    return result
