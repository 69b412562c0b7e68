"""The language reference inside Python's own help: text that every CPython carries, so nothing is fetched."""

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
from loopkit.errors import UserError
from loopkit.registry import Fraction, register


@register("source", "python_docs", layout="stream")
class PythonDocs(Source):
    r"""The topics of ``pydoc_data``, one document each, with whole topics held out.

    Topics that stand inside a longer one (``if`` in ``compound``) are left out: they would put validation text into
    train. About 370 kB remain. The text changes a little from one Python version to the next, and its fingerprint too.
    Its words are runs of characters between blanks and ends of line, as those of WikiText, in whose place it stands.

    Args:
        join: Text put between two topics; null puts nothing.
        validation: Share of the characters held out for validation, in whole topics.
        test: Share of the characters held out for test, in whole topics.
    """

    words: ClassVar[Words | None] = "words_and_lines"

    def __init__(self, *, join: str | None = "\n\n", validation: Fraction = 0.1, test: Fraction = 0.05) -> None:
        if validation + test >= 1:
            raise UserError(f"data.source: validation {validation} and test {test} leave nothing to train on")
        self.join = join
        self.shares = {VALIDATION: validation, TEST: test}

    def fingerprint(self, split: str) -> str:
        texts = [document.text for document in self.documents(split)]
        return hashlib.sha256(json.dumps(["python_docs", texts]).encode()).hexdigest()

    def documents(self, split: str) -> Iterator[Document]:
        split = canonical_split(split)
        chosen = self._splits().get(split)
        if chosen is None:
            raise UserError(f"python_docs: there is no split {split!r}; there are {TRAIN}, {VALIDATION}, {TEST}")
        if not chosen:
            raise UserError(f"python_docs: no topic is short enough for the {split} split; raise data.source.{split}")
        for name, text in sorted(chosen.items()):
            yield Document((Span(text),), f"{split}:{name}", count_lines(text))

    def _splits(self) -> dict[str, dict[str, str]]:
        topics = without_repeats(read_topics())
        total = sum(map(len, topics.values()))
        room = {split: int(share * total) for split, share in self.shares.items()}
        room[TRAIN] = total
        splits: dict[str, dict[str, str]] = {split: {} for split in room}
        # the order of a hash is as good as random, and moves no topic when another one appears
        for name in sorted(topics, key=lambda name: hashlib.sha256(name.encode()).digest()):
            split = next(split for split in (VALIDATION, TEST, TRAIN) if len(topics[name]) <= room[split])
            splits[split][name] = topics[name]
            room[split] -= len(topics[name])
        return splits


def read_topics() -> Mapping[str, str]:
    """The help topics of this Python, by name.

    Raises:
        UserError: If this Python was installed without them.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise UserError(
            "python_docs: this Python was installed without pydoc_data; install its full standard library "
            "(on Debian, package libpython3-stdlib), or choose another data.source"
        ) from error
    return topics


def without_repeats(topics: Mapping[str, str]) -> dict[str, str]:
    """The topics that do not stand, by more than half of their text, inside longer ones."""
    kept: dict[str, str] = {}
    seen: set[str] = set()
    for name, text in sorted(topics.items(), key=lambda item: (-len(item[1]), item[0])):
        paragraphs = [found for part in re.split(r"\n\s*\n", text) if (found := part.strip())]
        repeated = sum(len(paragraph) for paragraph in paragraphs if paragraph in seen)
        if paragraphs and repeated <= sum(map(len, paragraphs)) / 2:
            kept[name] = text
        seen.update(paragraphs)
    return kept
