"""The tokens that an evaluation scores, and the exact number of words and bytes in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np

from loopkit.components.source import WORDS, Words
from loopkit.data.encoding.store import PrefixCounts, TokenStore
from loopkit.data.padded import PaddedExamples
from loopkit.data.rows import Examples, Row
from loopkit.data.windows import OnceWindows, Windows
from loopkit.plural import plural

Protocol = Literal["non_overlapping", "half_overlap"]
MAX_GROUPS = 8
"""Maximum number of groups whose sizes are listed in the statement."""


class Scoring(Examples):
    """The sequences that an evaluation scores.

    Args:
        inner: The sequences.
        tokens_scored: Number of scored labels.
        mark: Counts of the scored text; ``None`` if tokens are scored more than once or truncated, so that loss per
            word and byte is undefined.
        statement: Description of what is scored, in one line.
        words: Definition of a word; ``None`` if the text has none.
        groups: The group of each sequence; empty if no document has a group.
    """

    def __init__(
        self,
        inner: Examples,
        tokens_scored: int,
        mark: PrefixCounts | None,
        statement: str,
        words: Words | None,
        groups: Sequence[str | None] = (),
    ) -> None:
        self.inner, self.tokens_scored, self.statement, self.groups = inner, tokens_scored, statement, groups
        self.words = None if mark is None or words is None else mark.words
        self.words_are = None if self.words is None or words is None else WORDS[words]
        self.bytes = None if mark is None else mark.bytes
        self.pad, self.width = inner.pad, inner.width

    def __len__(self) -> int:
        return len(self.inner)

    def row(self, index: int) -> Row:
        return self.inner.row(index)

    def scored(self, indices: Sequence[int]) -> int:
        return self.inner.scored(indices)


def score_stream(
    store: TokenStore,
    name: str,
    length: int,
    stride: int | None,
    protocol: Protocol,
    max_tokens: int | None,
    pad: int,
    words: Words | None,
) -> Scoring:
    """Build the scored windows of a stream.

    ``non_overlapping``: every token but the first, once. ``half_overlap``: overlapping windows scored in full, the
    tail left out, as
    the readout-blind-spot paper validates (arXiv:2606.24898).
    """
    mark = store.mark_before(max_tokens)
    extent = _format_extent(store, name, mark)
    if protocol == "non_overlapping":
        once = OnceWindows(store, length, length if stride is None else stride, stop=mark.tokens, pad=pad)
        overlap = f", {plural(length - once.stride, 'token')} of context" if once.stride < length else ""
        how = f"each token but the first scored once, windows of {length}{overlap}"
        counts = "" if words is None else f"{plural(mark.words, 'word')}, "
        return Scoring(once, once.targets, mark, f"{extent}, {counts}{plural(mark.bytes, 'byte')}; {how}", words)
    windows = Windows(store, length, max(length // 2, 1) if stride is None else stride, stop=mark.tokens, pad=pad)
    scored = windows.scored(range(len(windows)))
    distinct = (len(windows) - 1) * windows.stride + min(length, mark.tokens - 1)
    scores = f"{plural(scored, 'score')} of {plural(distinct, 'token')}"
    how = f"windows of {length} every {windows.stride} scored in full, {scores}"
    return Scoring(windows, scored, None, f"{extent}; {how}; no figure per word or byte", words)


def score_examples(
    store: TokenStore, name: str, length: int, max_tokens: int | None, pad: int, words: Words | None
) -> Scoring:
    """Build the scored examples: each learned part is scored once."""
    bounds = store.boundaries()
    mark = store.mark_before(max_tokens)
    examples = PaddedExamples(store, length, documents=int(np.searchsorted(bounds, mark.tokens)), pad=pad)
    scored = examples.scored(range(len(examples)))
    note = (
        f"; {examples.truncated} of them cut to {length}, so no figure per word or byte" if examples.truncated else ""
    )
    groups = store.groups()[: len(examples)]
    extent = f"{_format_extent(store, name, mark)} in {plural(len(examples), 'example')}{_format_sizes(groups)}"
    statement = f"{extent}, {scored:,} of them {'targets' if store.in_place else 'answers'} and scored{note}"
    return Scoring(examples, scored, None if examples.truncated else mark, statement, words, groups)


def _format_sizes(groups: Sequence[str | None]) -> str:
    """Format the number of examples of each group, if there are groups."""
    counts = Counter(group for group in groups if group is not None)
    if len(counts) > MAX_GROUPS:
        return f" of {len(counts)} groups"
    return f" ({', '.join(f'{group}: {counts[group]:,}' for group in sorted(counts))})" if counts else ""


def _format_extent(store: TokenStore, name: str, mark: PrefixCounts) -> str:
    if mark.tokens == len(store):
        return f"{name}: all {plural(mark.tokens, 'token')}"
    return f"{name}: the first {mark.tokens:,} of {len(store):,} tokens ({mark.tokens / len(store):.1%})"
