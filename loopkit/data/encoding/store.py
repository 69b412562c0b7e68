"""Encoded splits on disk: memory-mapped token shards, and the counts of each piece of text."""

from __future__ import annotations

import hashlib
import json
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from loopkit.components.tokenizer import Tokenizer
from loopkit.data.answers import GROUPS, LEARN, TARGETS, Answers
from loopkit.data.encoding.cache import CacheEntry, file_digests
from loopkit.data.encoding.pieces import TextPiece
from loopkit.errors import UserError

SHARD = 2**26
"""Tokens in a shard: 128 MiB of 16-bit numbers."""
BATCH = 2**20
"""Characters that are encoded in one call."""

MARKS = "marks.bin"
COUNTS = ("characters", "bytes", "words", "unknown_tokens", "unknown", "dropped")


@dataclass(frozen=True)
class PrefixCounts:
    """Exact counts of a prefix of the split that ends between two pieces."""

    tokens: int
    bytes: int
    words: int


def write_store(
    folder: Path, pieces: Iterable[TextPiece], tokenizer: Tokenizer, *, examples: bool, progress: Callable[[int], None]
) -> dict[str, Any]:
    """Encode pieces into a folder.

    Args:
        folder: An empty folder.
        pieces: The text, in order.
        tokenizer: The tokenizer.
        examples: Whether each piece is an example with learned parts.
        progress: Called with the number of characters done.

    Returns:
        Facts: dtype, tokens per shard, and the counts of the split.

    Raises:
        UserError: If an example has nothing to learn, or targets do not match their text.
    """
    dtype = np.dtype("<u2" if tokenizer.size <= 2**16 else "<u4")
    marks, shards = array("I"), [0]
    answers = Answers(dtype)
    counts = Counter(dict.fromkeys(COUNTS, 0))
    with ExitStack() as stack:
        shard = stack.enter_context((folder / _shard(0)).open("wb"))
        for batch in _batches(pieces):
            if shards[-1] >= SHARD:
                shard = stack.enter_context((folder / _shard(len(shards))).open("wb"))
                shards.append(0)
            for piece, ids, targets in _encode(batch, tokenizer):
                numbers = np.concatenate(ids)
                shard.write(numbers.astype(dtype).tobytes())
                shards[-1] += len(numbers)
                marks.extend((len(numbers), piece.bytes, piece.words))
                counts.update(_count_piece(piece, numbers, tokenizer))
                if examples:
                    answers.add(piece, ids, targets)
            progress(counts["characters"])
    (folder / MARKS).write_bytes(np.array(marks, dtype="<u4").tobytes())
    facts = {"dtype": dtype.str, "shards": shards, "tokens": sum(shards)} | counts
    return facts | (answers.write(folder) if examples else {})


def _count_piece(piece: TextPiece, numbers: np.ndarray, tokenizer: Tokenizer) -> dict[str, int]:
    lost = [tokenizer.lost(part.text) for part in piece.parts]
    unknown = 0 if tokenizer.unknown is None else int(np.count_nonzero(numbers == tokenizer.unknown))
    return {
        "characters": sum(len(part.text) for part in piece.parts),
        "bytes": piece.bytes,
        "words": piece.words,
        "unknown_tokens": unknown,
        "unknown": sum(part.unknown for part in lost),
        "dropped": sum(part.dropped for part in lost),
    }


def _batches(pieces: Iterable[TextPiece]) -> Iterator[list[TextPiece]]:
    batch: list[TextPiece] = []
    size = 0
    for piece in pieces:
        batch.append(piece)
        size += sum(len(part.text) for part in piece.parts)
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _encode(
    batch: list[TextPiece], tokenizer: Tokenizer
) -> Iterator[tuple[TextPiece, list[np.ndarray], list[np.ndarray | None]]]:
    """Yield each piece with the token ids of its parts and of their targets."""
    parts = [part for piece in batch for part in piece.parts]
    plain = iter(tokenizer.encode([part.text for part in parts if not part.literal]))
    literal = iter(tokenizer.encode_literal([part.text for part in parts if part.literal]))
    targets = iter(tokenizer.encode_literal([part.target for part in parts if part.target is not None]))
    for piece in batch:
        yield (
            piece,
            [next(literal if part.literal else plain) for part in piece.parts],
            [None if part.target is None else next(targets) for part in piece.parts],
        )


def _shard(number: int) -> str:
    return f"tokens-{number:05d}.bin"


class TokenStore:
    """The tokens of a split, memory-mapped from disk.

    Args:
        entry: The cache entry that ``write_store`` filled.
    """

    def __init__(self, entry: CacheEntry) -> None:
        self.facts = entry.facts
        self._folder = entry.folder
        dtype = np.dtype(entry.facts["dtype"])
        self._shards = [_map(entry.folder / _shard(i), dtype) for i in range(len(entry.facts["shards"]))]
        self._starts = np.cumsum([0, *entry.facts["shards"]]).tolist()
        self._marks = _map(entry.folder / MARKS, np.dtype("<u4")).reshape(-1, 3)
        learn = entry.folder / LEARN
        self._learn = _map(learn, np.dtype(bool)) if learn.exists() else None
        targets = entry.folder / TARGETS
        self._targets = _map(targets, dtype) if targets.exists() else None

    def __len__(self) -> int:
        return int(self._starts[-1])

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return tokens ``start`` to ``stop`` (exclusive).

        Shapes: int64 ``[stop - start]``.
        """
        parts: list[np.ndarray] = []
        for number in range(bisect_right(self._starts, start) - 1, len(self._shards)):
            first = self._starts[number]
            if first >= stop:
                break
            parts.append(self._shards[number][max(start - first, 0) : stop - first])
        return np.concatenate(parts or [np.empty(0)]).astype(np.int64)

    def learned(self, start: int, stop: int) -> np.ndarray:
        """Return whether each token from ``start`` to ``stop`` (exclusive) is learned."""
        return np.ones(stop - start, dtype=bool) if self._learn is None else np.asarray(self._learn[start:stop])

    @property
    def in_place(self) -> bool:
        """Whether the labels are targets at the positions of the tokens, not the next tokens."""
        return self._targets is not None

    def targets(self, start: int, stop: int) -> np.ndarray:
        """Return the targets of tokens ``start`` to ``stop`` (exclusive); 0 where ``learned`` is false.

        Shapes: int64 ``[stop - start]``.
        """
        assert self._targets is not None
        return np.asarray(self._targets[start:stop]).astype(np.int64)

    def groups(self) -> list[str | None]:
        """Return the group of each piece; empty if no piece has one."""
        file = self._folder / GROUPS
        if not file.exists():
            return []
        names = [None, *self.facts["groups"]]
        return [names[number] for number in np.fromfile(file, dtype="<u4")]

    @cached_property
    def sha256(self) -> str:
        """Digest of the tokens, their targets, and the flags of learned ones."""
        # words, bytes and groups do not affect training
        trained = {name: digest for name, digest in file_digests(self._folder).items() if name not in (MARKS, GROUPS)}
        return hashlib.sha256(json.dumps(trained, sort_keys=True).encode()).hexdigest()

    def boundaries(self) -> np.ndarray:
        """Return the number of tokens before each piece, and the total: int64 ``[pieces + 1]``."""
        return np.concatenate([[0], np.cumsum(self._marks[:, 0], dtype=np.int64)])

    @property
    def shortest_prefix(self) -> int:
        """Number of tokens of the shortest prefix that ends between two pieces and has a token to predict."""
        boundaries = self.boundaries()
        return int(boundaries[min(int(np.searchsorted(boundaries, 2)), len(boundaries) - 1)])

    def mark(self, pieces: int) -> PrefixCounts:
        """Return the counts of the first ``pieces`` pieces."""
        totals = self._marks[:pieces].sum(axis=0, dtype=np.int64)
        return PrefixCounts(*map(int, totals))

    def mark_before(self, limit: int | None) -> PrefixCounts:
        """Return the counts of the longest prefix with at most ``limit`` tokens; of the split for ``None``.

        Raises:
            UserError: If even the first piece has more tokens.
        """
        if limit is None:
            return self.mark(len(self._marks))
        boundaries = self.boundaries()
        pieces = int(np.searchsorted(boundaries, limit, side="right")) - 1
        if pieces == 0:
            raise UserError(
                f"evaluate.max_tokens: {limit} is less than the tokens of the first piece of text with a known word "
                f"count; set at least {boundaries[1]}"
            )
        return self.mark(pieces)


def _map(file: Path, dtype: np.dtype) -> np.ndarray:
    if file.stat().st_size == 0:  # an empty file cannot be mapped
        return np.empty(0, dtype=dtype)
    return np.memmap(file, dtype=dtype, mode="r")
