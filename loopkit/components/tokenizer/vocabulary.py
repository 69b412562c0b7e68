"""The base class of tokenizers whose vocabulary is fitted by counting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np

from loopkit.components.tokenizer import Tokenizer
from loopkit.errors import UserError

SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")
PAD, BOS, EOS, UNKNOWN = range(len(SPECIAL))


class _Ids(dict[str, int]):
    """Ids by token; other tokens map to the unknown token."""

    def __missing__(self, token: str) -> int:
        return UNKNOWN


class Counting(Tokenizer):
    """A tokenizer whose vocabulary is the special tokens, then the counted tokens, most frequent first.

    Args:
        fit_on: Splits to count the tokens on.
        max_size: Maximum vocabulary size, including special tokens; ``None`` for no limit.
        min_count: Minimum number of occurrences; less frequent tokens are unknown.

    Raises:
        UserError: If ``fit_on`` is empty, or ``max_size`` holds only the special tokens.
    """

    pad, bos, eos, unknown = PAD, BOS, EOS, UNKNOWN

    def __init__(self, fit_on: Sequence[str], max_size: int | None, min_count: int) -> None:
        if not fit_on:
            raise UserError(
                "data.tokenizer.fit_on is empty; set the splits to count the vocabulary on, such as [train]"
            )
        if max_size is not None and max_size <= len(SPECIAL):
            raise UserError(
                f"data.tokenizer.max_size is {max_size}, but {' '.join(SPECIAL)} already need {len(SPECIAL)}; "
                f"set at least {len(SPECIAL) + 1}"
            )
        self.fit_on = tuple(fit_on)
        self.max_size = max_size
        self.min_count = min_count
        self._set(SPECIAL)

    def cut(self, text: str) -> Sequence[str]:
        """Split a text into tokens, as text."""
        raise NotImplementedError

    def options(self) -> dict[str, Any]:
        """Return the options of the constructor."""
        raise NotImplementedError

    def fit(self, texts: Iterable[str]) -> None:
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(self.cut(text))
        for special in SPECIAL:  # special tokens in the text already have ids
            counts.pop(special, None)
        frequent = [token for token, count in counts.items() if count >= self.min_count]
        if not frequent:
            raise UserError(
                f"no token occurs {self.min_count} times in {', '.join(self.fit_on)}; lower data.tokenizer.min_count"
            )
        frequent.sort(key=lambda token: (-counts[token], token))
        limit = None if self.max_size is None else self.max_size - len(SPECIAL)
        self._set([*SPECIAL, *frequent[:limit]])

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        token_id = self._ids.__getitem__
        return [np.array(list(map(token_id, self.cut(text))), dtype=self._dtype) for text in texts]

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        return "".join(self.tokens[i] for i in ids if special or i >= len(SPECIAL))

    def state(self) -> dict[str, Any]:
        return {"options": self.options(), "tokens": self.tokens}

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Self:
        tokenizer = cls(**state["options"])
        tokenizer._set(state["tokens"])
        return tokenizer

    def _set(self, tokens: Sequence[str]) -> None:
        self.tokens = list(tokens)
        self.size = len(self.tokens)
        self._ids = _Ids((token, number) for number, token in enumerate(self.tokens))
        self._dtype = np.uint16 if self.size <= 2**16 else np.uint32
