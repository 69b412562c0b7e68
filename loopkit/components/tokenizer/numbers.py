"""Token ids as text, for a model without a tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import NonNegativeInt, PositiveInt

from loopkit.components.tokenizer import Tokenizer
from loopkit.errors import UserError
from loopkit.registry import register


@register("tokenizer", "numbers")
class Numbers(Tokenizer):
    """Text that consists of token ids separated by whitespace, such as ``17 4 4``; other text is an error.

    Args:
        size: Number of tokens; ids are 0 to size - 1.
        ends: Tokens that end a text.
    """

    separable = True
    conformance: ClassVar[dict[str, Any]] = {"options": {"size": 50}, "texts": ["17 4 4", "0 49", ""]}

    def __init__(self, *, size: PositiveInt, ends: list[NonNegativeInt] | None = None) -> None:
        self.size = size
        self.eos = ends[0] if ends else None
        self.other_ends = tuple(ends[1:]) if ends else ()

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        dtype = np.uint16 if self.size <= 2**16 else np.uint32
        return [np.array([self._number(word) for word in text.split()], dtype=dtype) for text in texts]

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        return " ".join(str(int(number)) for number in ids)

    def state(self) -> dict[str, Any]:
        return {"size": self.size} | ({"ends": list(self.ends)} if self.ends else {})

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Self:
        return cls(**state)

    def _number(self, word: str) -> int:
        if word.isascii() and word.isdigit() and int(word) < self.size:
            return int(word)
        raise UserError(
            f"data.tokenizer: {word[:40]!r} is not a token id from 0 to {self.size - 1}; write the text as ids, or set "
            "the tokenizer of the model"
        )
