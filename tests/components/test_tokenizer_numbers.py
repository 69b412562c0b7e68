"""Token numbers as text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from loopkit.components.tokenizer import Lost, load_tokenizer
from loopkit.components.tokenizer.numbers import Numbers


def test_encoding_roundtrips(tmp_path: Path) -> None:
    tokenizer = Numbers(size=61)
    (ids, empty) = tokenizer.encode(["0 7\n60 ", ""])
    assert ids.tolist() == [0, 7, 60]
    assert empty.shape == (0,)
    assert tokenizer.decode(ids) == "0 7 60"
    assert tokenizer.lost("0 7") == Lost()
    tokenizer.save(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert (loaded.size, loaded.fingerprint()) == (61, tokenizer.fingerprint())
    assert loaded.fingerprint() != Numbers(size=62).fingerprint()


def test_large_ids_need_wider_integers() -> None:
    (ids,) = Numbers(size=100_000).encode(["99999"])
    assert ids.tolist() == [99_999]
    assert ids.dtype == np.uint32


@pytest.mark.parametrize("word", ["61", "-1", "a", "1.5", "²"])
def test_other_text_is_an_error(word: str) -> None:
    with pytest.raises(ValueError, match="is not a token id from 0 to 60"):
        Numbers(size=61).encode([f"1 {word}"])
