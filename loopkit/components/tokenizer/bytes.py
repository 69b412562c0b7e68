"""A lossless tokenizer of UTF-8 bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from loopkit.components.tokenizer import Lost, Tokenizer
from loopkit.components.tokenizer.published import byte_characters, tokenizer_files
from loopkit.registry import register


@register("tokenizer", "bytes")
class Bytes(Tokenizer):
    """The bytes of UTF-8, then pad, bos and eos: 259 tokens.

    Incomplete characters are decoded as U+FFFD.
    """

    size = 259
    pad, bos, eos = 256, 257, 258
    separable = True

    def __init__(self) -> None:
        pass

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        return [np.frombuffer(text.encode(), dtype=np.uint8).astype(np.uint16) for text in texts]

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        names = {256: b"<pad>", 257: b"<bos>", 258: b"<eos>"} if special else {}
        text = b"".join(bytes([i]) if i < 256 else names.get(i, b"") for i in map(int, ids))
        return text.decode(errors="replace")

    def lost(self, text: str) -> Lost:
        return Lost()

    def published(self) -> dict[str, Any]:
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
        vocabulary = {character: byte for byte, character in sorted(byte_characters().items())}
        special = {"pad": ("<pad>", self.pad), "bos": ("<bos>", self.bos), "eos": ("<eos>", self.eos)}
        return tokenizer_files({"type": "BPE", "vocab": vocabulary, "merges": []}, level, level, special)

    def state(self) -> dict[str, Any]:
        return {}

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Self:
        return cls()
