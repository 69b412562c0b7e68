"""Prompts and their continuations as token ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loopkit.components.tokenizer import Tokenizer
from loopkit.data.rows import IGNORE, Examples, Row
from loopkit.errors import UserError
from loopkit.plural import plural


@dataclass(frozen=True)
class Continuation:
    """A sequence whose last tokens are scored.

    Args:
        tokens: ``[T + 1]`` int64, prompt and continuation.
        num_scored: Number of tokens of the continuation, from 1 to T.
        num_dropped: Number of tokens that were dropped at the start of the prompt because they do not fit the window.
    """

    tokens: np.ndarray
    num_scored: int
    num_dropped: int = 0


class Continuations(Examples):
    """Continuations as numbered sequences.

    Args:
        items: The continuations.
        pad: Token that pads rows on the right.
    """

    def __init__(self, items: Sequence[Continuation], pad: int = 0) -> None:
        self.items, self.pad = items, pad

    def __len__(self) -> int:
        return len(self.items)

    def row(self, index: int) -> Row:
        item = self.items[index]
        labels = item.tokens[1:].copy()
        labels[: len(labels) - item.num_scored] = IGNORE
        return Row(item.tokens[:-1], labels)


def encode_continuations(
    tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]], window: int | None = None
) -> list[Continuation]:
    """Encode prompts with their continuations.

    Both are encoded as one text, and the tokens after as many as the prompt alone has are the continuation. Blanks at
    the end of a prompt belong to the continuation, as in most tokenizers a word includes the blank before it.

    Args:
        tokenizer: The model's.
        pairs: Prompt and continuation.
        window: Maximum number of inputs, in tokens; longer prompts lose their start. ``None``: unlimited.

    Raises:
        UserError: If a prompt or a continuation has no tokens, or a continuation does not fit the window.
    """
    moved = [(prompt.rstrip(), prompt[len(prompt.rstrip()) :] + text) for prompt, text in pairs]
    prompts = dict.fromkeys(prompt for prompt, _ in moved)
    lengths = {prompt: len(ids) for prompt, ids in zip(prompts, tokenizer.encode(list(prompts)), strict=True)}
    encoded = tokenizer.encode([prompt + text for prompt, text in moved])
    return [
        build_continuation(ids, len(ids) - lengths[prompt], window, repr(text))
        for (prompt, text), ids in zip(moved, encoded, strict=True)
    ]


def build_continuation(ids: Sequence[int] | np.ndarray, num_scored: int, window: int | None, name: str) -> Continuation:
    """Build a continuation from token ids, truncated on the left to the window.

    Args:
        ids: Prompt and continuation.
        num_scored: Number of tokens of the continuation.
        window: Maximum number of inputs, in tokens; ``None``: unlimited.
        name: What the continuation is called in messages.

    Raises:
        UserError: If nothing is left to score or to score it from.
    """
    if num_scored < 1:
        raise UserError(f"the continuation {name} has no tokens after its prompt; change the text or the tokenizer")
    if num_scored >= len(ids):
        raise UserError(f"the prompt of {name} has no tokens, and a likelihood needs at least one; add text before it")
    if window is not None and num_scored > window:
        raise UserError(
            f"the continuation {name} has {plural(num_scored, 'token')}, and the window of the model has {window}; "
            "shorten it, or train with a longer data.length"
        )
    num_dropped = 0 if window is None else max(0, len(ids) - window - 1)
    return Continuation(np.asarray(ids[num_dropped:], dtype=np.int64), num_scored, num_dropped)
