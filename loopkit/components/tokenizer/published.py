"""Files of a tokenizer in the format of Hugging Face."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ROLES = {"pad": "pad_token", "bos": "bos_token", "eos": "eos_token", "unknown": "unk_token"}
"""Name of each special token in ``tokenizer_config.json``."""


def tokenizer_files(
    model: Mapping[str, Any],
    pre_tokenizer: Mapping[str, Any],
    decoder: Mapping[str, Any],
    special: Mapping[str, tuple[str, int]],
) -> dict[str, Any]:
    """Return ``tokenizer.json`` and ``tokenizer_config.json``.

    Args:
        model: The model of ``tokenizer.json``.
        pre_tokenizer: What splits text before the model.
        decoder: What joins tokens.
        special: Text and number of each special token, by a key of ``ROLES``.
    """
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    inner = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": text} | flags for text, number in special.values()],
        "normalizer": None,
        "pre_tokenizer": dict(pre_tokenizer),
        "post_processor": None,
        "decoder": dict(decoder),
        "model": dict(model),
    }
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    return {
        "tokenizer.json": inner,
        "tokenizer_config.json": config | {ROLES[role]: text for role, (text, _) in special.items()},
    }


def byte_characters() -> dict[int, str]:
    """Return the printable character that stands for each byte in a byte-level BPE: itself, or one from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
