"""What tokenizers that learn their vocabulary by counting have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np

from loopkit.components.tokenizer import Tokenizer
from loopkit.errors import UserError

SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")
PAD, BOS, EOS, UNKNOWN = range(len(SPECIAL))


class _Numbers(dict[str, int]):
    """Token to number, where what is not there is the unknown token."""

    def __missing__(self, token: str) -> int:
        return UNKNOWN


class Counting(Tokenizer):
    """A tokenizer whose vocabulary is the special tokens, then what it counted, most frequent first.

    Args:
        fit_on: Splits that the vocabulary is counted on.
        max_size: Largest vocabulary, special tokens included; ``None`` for no limit.
        min_count: Tokens seen less often become unknown.

    Raises:
        ValueError: If there is no split to count on, or no room beside the special tokens.
    """

    pad, bos, eos, unknown = PAD, BOS, EOS, UNKNOWN

    def __init__(self, fit_on: Sequence[str], max_size: int | None, min_count: int) -> None:
        if not fit_on:
            raise UserError(
                "data.tokenizer.fit_on is empty; name the splits that the vocabulary is counted on, such as [train]"
            )
        if max_size is not None and max_size <= len(SPECIAL):
            raise UserError(
                f"data.tokenizer.max_size is {max_size}, and {len(SPECIAL)} of it are {' '.join(SPECIAL)}; "
                f"set at least {len(SPECIAL) + 1}"
            )
        self.fit_on = tuple(fit_on)
        self.max_size = max_size
        self.min_count = min_count
        self._set(SPECIAL)

    def cut(self, text: str) -> Sequence[str]:
        """The tokens of a text as text, before the vocabulary is asked."""
        raise NotImplementedError

    def options(self) -> dict[str, Any]:
        """The constructor's options, to build it again."""
        raise NotImplementedError

    def fit(self, texts: Iterable[str]) -> None:
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(self.cut(text))
        for special in SPECIAL:  # text that looks like a special token is that token
            counts.pop(special, None)
        kept = [token for token, count in counts.items() if count >= self.min_count]
        if not kept:
            raise UserError(
                f"no token occurs {self.min_count} times in {', '.join(self.fit_on)}; lower data.tokenizer.min_count"
            )
        kept.sort(key=lambda token: (-counts[token], token))
        room = None if self.max_size is None else self.max_size - len(SPECIAL)
        self._set([*SPECIAL, *kept[:room]])

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        number = self._numbers.__getitem__
        return [np.array(list(map(number, self.cut(text))), dtype=self._dtype) for text in texts]

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
        self._numbers = _Numbers((token, number) for number, token in enumerate(self.tokens))
        self._dtype = np.uint16 if self.size <= 2**16 else np.uint32
