"""Windows over a stream of tokens: overlapping ones for training, and those that score each token once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loopkit.data.encoding.store import TokenStore
from loopkit.data.rows import IGNORE, Examples, Row
from loopkit.errors import UserError


class Windows(Examples):
    """Windows of ``length`` inputs that start every ``stride`` tokens; what is left at the end is not read.

    A window is ``length + 1`` tokens: inputs are all but the last, labels all but the first. Windows start at
    0, stride, 2 stride... as long as they fit. A stream shorter than that is one short window.

    Args:
        store: The tokens.
        length: Inputs in a window.
        stride: Tokens from the start of one window to the start of the next.
        stop: Read this many tokens and no more; ``None`` for all.

    Raises:
        ValueError: If there are not even two tokens.
    """

    def __init__(self, store: TokenStore, length: int, stride: int, *, stop: int | None = None, pad: int = 0) -> None:
        self.store, self.length, self.stride, self.pad = store, length, stride, pad
        self.tokens = len(store) if stop is None else stop
        if self.tokens < 2:
            raise UserError(f"{self.tokens} tokens make no window, which needs two; give more text")

    def __len__(self) -> int:
        return max(0, self.tokens - self.length - 1) // self.stride + 1

    def row(self, index: int) -> Row:
        start = index * self.stride
        found = self.store.read(start, min(start + self.length + 1, self.tokens))
        return Row(found[:-1], found[1:])

    def scored(self, indices: Sequence[int]) -> int:
        return len(indices) * min(self.length, self.tokens - 1)

    def real_tokens(self, indices: Sequence[int]) -> int:
        return self.scored(indices)  # every input has a label, and none is padding


class OnceWindows(Examples):
    """Windows that together score every token but the first exactly once, each with as much context as fits.

    Window i begins at ``i * stride`` and scores what no window before it has scored; with ``stride < length`` it begins
    with ``length - stride`` tokens of context. The last window is as long as it needs to be, and is padded.

    Args:
        store: The tokens.
        length: Inputs in a window.
        stride: Tokens that a window moves on, at most ``length``.
        stop: Score this many tokens from the start, less one.

    Raises:
        ValueError: If there are not even two tokens, or windows would leave tokens between them.
    """

    def __init__(self, store: TokenStore, length: int, stride: int, *, stop: int, pad: int = 0) -> None:
        if stride > length:
            raise UserError(f"evaluate.stride {stride} is more than the window's {length}: tokens would be left out")
        if stop < 2:
            raise UserError(f"{stop} tokens cannot be scored, as the first one has no context; give more text")
        self.store, self.length, self.stride, self.pad = store, length, stride, pad
        self.targets = stop - 1
        self.width = min(length, self.targets)

    def __len__(self) -> int:
        return 1 + max(0, -(-(self.targets - self.length) // self.stride))

    def row(self, index: int) -> Row:
        start = index * self.stride
        stop = min(start + self.length, self.targets)
        found = self.store.read(start, stop + 1)
        labels = found[1:].copy()
        if index:
            labels[: self.length - self.stride] = IGNORE  # scored by the window before
        return Row(found[:-1], labels)

    def scored(self, indices: Sequence[int]) -> int:
        starts = np.array(indices, dtype=np.int64) * self.stride
        first = np.where(starts > 0, starts + self.length - self.stride, 0)
        return int((np.minimum(starts + self.length, self.targets) - first).sum())
