"""What an evaluation scores: which tokens, under which protocol, and the exact words and bytes that they stand for."""

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

Protocol = Literal["non_overlapping", "half_overlap"]
MOST_GROUPS = 8
"""Most groups whose sizes are stated one by one."""


class Scoring(Examples):
    """Sequences whose labels are what an evaluation scores.

    Args:
        inner: The sequences.
        tokens_scored: Labels scored over all of them.
        mark: What the scored text holds; ``None`` where tokens are scored more than once or cut away, so that no number
            of words and bytes belongs to the sum of their losses.
        statement: What is scored, in one line for people.
        words: What the words of the text are; ``None`` where it has none.
        groups: The group of each sequence, where it has one; empty where none has.
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
    """Score a stream.

    ``non_overlapping``: every token but the first, once. ``half_overlap``: overlapping windows scored in full, the
    tail left out, as
    the readout-blind-spot paper validates (arXiv:2606.24898).
    """
    mark = store.mark_before(max_tokens)
    what = _what(store, name, mark)
    if protocol == "non_overlapping":
        once = OnceWindows(store, length, length if stride is None else stride, stop=mark.tokens, pad=pad)
        overlap = f", {length - once.stride} tokens of context" if once.stride < length else ""
        how = f"each token but the first scored once, windows of {length}{overlap}"
        counts = "" if words is None else f"{mark.words:,} words, "
        return Scoring(once, once.targets, mark, f"{what}, {counts}{mark.bytes:,} bytes; {how}", words)
    windows = Windows(store, length, max(length // 2, 1) if stride is None else stride, stop=mark.tokens, pad=pad)
    scored = windows.scored(range(len(windows)))
    distinct = (len(windows) - 1) * windows.stride + min(length, mark.tokens - 1)
    how = f"windows of {length} every {windows.stride} scored in full, {scored:,} scores of {distinct:,} tokens"
    return Scoring(windows, scored, None, f"{what}; {how}; no figure per word or byte", words)


def score_examples(
    store: TokenStore, name: str, length: int, max_tokens: int | None, pad: int, words: Words | None
) -> Scoring:
    """Score the learned parts of examples, each once."""
    bounds = store.boundaries()
    mark = store.mark_before(max_tokens)
    examples = PaddedExamples(store, length, documents=int(np.searchsorted(bounds, mark.tokens)), pad=pad)
    scored = examples.scored(range(len(examples)))
    cut = f"; {examples.truncated} of them cut to {length}, so no figure per word or byte" if examples.truncated else ""
    groups = store.groups()[: len(examples)]
    what = f"{_what(store, name, mark)} in {len(examples):,} examples{_sizes(groups)}"
    statement = f"{what}, {scored:,} of them {'targets' if store.in_place else 'answers'} and scored{cut}"
    return Scoring(examples, scored, None if examples.truncated else mark, statement, words, groups)


def _sizes(groups: Sequence[str | None]) -> str:
    """How many examples each group has, where there are groups."""
    counts = Counter(group for group in groups if group is not None)
    if len(counts) > MOST_GROUPS:
        return f" of {len(counts)} groups"
    return f" ({', '.join(f'{group}: {counts[group]:,}' for group in sorted(counts))})" if counts else ""


def _what(store: TokenStore, name: str, mark: PrefixCounts) -> str:
    if mark.tokens == len(store):
        return f"{name}: all {mark.tokens:,} tokens"
    return f"{name}: the first {mark.tokens:,} of {len(store):,} tokens ({mark.tokens / len(store):.1%})"
