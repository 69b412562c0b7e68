"""Windows over a stream of tokens: for training, and for scoring each token once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loopkit.data.encoding.store import TokenStore
from loopkit.data.rows import IGNORE, Examples, Row
from loopkit.errors import UserError
from loopkit.plural import plural


class Windows(Examples):
    """Windows of ``length`` inputs that start every ``stride`` tokens; an incomplete last window is dropped.

    A window has ``length + 1`` tokens: inputs are all but the last, labels all but the first. A stream shorter than
    that is one short window.

    Args:
        store: The tokens.
        length: Number of inputs in a window.
        stride: Tokens from the start of one window to the start of the next.
        stop: Read only the first ``stop`` tokens; ``None`` for all.

    Raises:
        UserError: If there are fewer than two tokens.
    """

    def __init__(self, store: TokenStore, length: int, stride: int, *, stop: int | None = None, pad: int = 0) -> None:
        self.store, self.length, self.stride, self.pad = store, length, stride, pad
        self.tokens = len(store) if stop is None else stop
        if self.tokens < 2:
            raise UserError(f"the stream has {plural(self.tokens, 'token')}, and a window needs at least two; add text")

    def __len__(self) -> int:
        return max(0, self.tokens - self.length - 1) // self.stride + 1

    def row(self, index: int) -> Row:
        start = index * self.stride
        tokens = self.store.read(start, min(start + self.length + 1, self.tokens))
        return Row(tokens[:-1], tokens[1:])

    def scored(self, indices: Sequence[int]) -> int:
        return len(indices) * min(self.length, self.tokens - 1)

    def real_tokens(self, indices: Sequence[int]) -> int:
        return self.scored(indices)  # every input has a label, and none is padding


class OnceWindows(Examples):
    """Windows that together score every token but the first exactly once.

    Window i starts at ``i * stride`` and scores the tokens that no earlier window scores; with ``stride < length`` its
    first ``length - stride`` tokens are context only. The last window may be shorter; its batch is padded.

    Args:
        store: The tokens.
        length: Number of inputs in a window.
        stride: Tokens from the start of one window to the start of the next, at most ``length``.
        stop: Score tokens 1 to ``stop - 1``.

    Raises:
        UserError: If there are fewer than two tokens, or the stride skips tokens.
    """

    def __init__(self, store: TokenStore, length: int, stride: int, *, stop: int, pad: int = 0) -> None:
        if stride > length:
            raise UserError(f"evaluate.stride {stride} is larger than the window ({length}) and skips tokens; lower it")
        if stop < 2:
            raise UserError(f"the split has {plural(stop, 'token')}, and scoring needs at least two; add text")
        self.store, self.length, self.stride, self.pad = store, length, stride, pad
        self.targets = stop - 1
        self.width = min(length, self.targets)

    def __len__(self) -> int:
        return 1 + max(0, -(-(self.targets - self.length) // self.stride))

    def row(self, index: int) -> Row:
        start = index * self.stride
        stop = min(start + self.length, self.targets)
        tokens = self.store.read(start, stop + 1)
        labels = tokens[1:].copy()
        if index:
            labels[: self.length - self.stride] = IGNORE  # scored by the window before
        return Row(tokens[:-1], labels)

    def scored(self, indices: Sequence[int]) -> int:
        starts = np.array(indices, dtype=np.int64) * self.stride
        first = np.where(starts > 0, starts + self.length - self.stride, 0)
        return int((np.minimum(starts + self.length, self.targets) - first).sum())
