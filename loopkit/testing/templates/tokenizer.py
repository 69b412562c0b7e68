"""A tokenizer. It needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from loopkit.components.tokenizer import Tokenizer
from loopkit.registry import register


@register("tokenizer", "template")
class Template(Tokenizer):
    """The hexadecimal digits of UTF-8, two for each byte, then padding, beginning and end: 19 tokens.

    Nothing is unknown and nothing is lost, at twice the length of bytes.
    """

    size = 19
    pad, bos, eos = 16, 17, 18
    separable = True

    def __init__(self) -> None:
        pass

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        found = (np.frombuffer(text.encode(), dtype=np.uint8) for text in texts)
        return [np.stack([b >> 4, b & 15], axis=1).reshape(-1).astype(np.uint16) for b in found]

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        words = {16: "<pad>", 17: "<bos>", 18: "<eos>"} if special else {}
        tail = "".join(words[i] for i in map(int, ids) if i in words)
        digits = [i for i in map(int, ids) if i < 16]
        whole = bytes(high << 4 | low for high, low in zip(digits[::2], digits[1::2], strict=False))
        return whole.decode(errors="replace") + tail

    def state(self) -> dict[str, Any]:
        return {}

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Self:
        return cls()
