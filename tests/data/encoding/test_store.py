"""Shards on disk: what was encoded comes back, from any place, without being in memory."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from loopkit.components.tokenizer.regex import Regex
from loopkit.data.encoding.store import TokenStore
from tests.data.toys import examples_of, store_of

TEXT = " ".join(f"word{i}" for i in range(400))


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    """Some thousand bytes in shards of a few hundred."""
    with patch("loopkit.data.encoding.store.SHARD", 500), patch("loopkit.data.encoding.store.BATCH", 300):
        return store_of(tmp_path, [TEXT])


def test_shards_are_one_sequence(store: TokenStore, tmp_path: Path) -> None:
    expected = np.frombuffer(TEXT.encode(), dtype=np.uint8)
    assert len(store.facts["shards"]) > 3
    assert len(list((tmp_path / "toy").glob("tokens-*.bin"))) == len(store.facts["shards"])
    assert len(store) == store.facts["tokens"] == len(expected)
    for start, stop in [(0, len(expected)), (0, 1), (490, 1600), (len(expected) - 3, len(expected)), (7, 7)]:
        tokens = store.read(start, stop)
        assert tokens.dtype == np.int64
        np.testing.assert_array_equal(tokens, expected[start:stop])


def test_small_vocabularies_use_two_bytes(store: TokenStore, tmp_path: Path) -> None:
    size = sum(file.stat().st_size for file in (tmp_path / "toy").glob("tokens-*.bin"))
    assert size == 2 * len(store)


def test_large_vocabularies_use_four_bytes(tmp_path: Path) -> None:
    tokenizer = Regex(max_size=None, min_count=1)
    tokenizer.fit([" ".join(map(str, range(70_000)))])
    store = store_of(tmp_path, ["69999 3"], tokenizer=tokenizer)
    assert tokenizer.decode(store.read(0, 3).tolist()) == "69999 3"
    assert store.facts["dtype"] == "<u4"


def test_marks_are_prefix_counts(store: TokenStore) -> None:
    boundaries = store.boundaries()
    assert boundaries[-1] == len(store)
    total = store.mark_before(None)
    assert (total.tokens, total.bytes, total.words) == (len(TEXT), len(TEXT), 401)
    for limit in (boundaries[1], boundaries[1] + 1, len(TEXT) - 1, len(TEXT), 10**9):
        mark = store.mark_before(int(limit))
        assert mark.tokens in boundaries
        assert mark.tokens <= limit
        read = TEXT[: mark.bytes]
        assert mark.words == len(read.split()) + (mark.tokens == len(TEXT))


def test_too_short_prefix_suggests_the_minimum(store: TokenStore) -> None:
    minimum = int(store.boundaries()[1])
    with pytest.raises(ValueError, match=rf"evaluate\.max_tokens: {minimum - 1} .*set at least {minimum}"):
        store.mark_before(minimum - 1)


def test_learned_flags(tmp_path: Path) -> None:
    store = examples_of(tmp_path, ["1+1=2", "10+1=11"])
    assert store.learned(0, 5).tolist() == [False] * 4 + [True]
    assert store.learned(5, 12).tolist() == [False] * 5 + [True] * 2
    assert store.boundaries().tolist() == [0, 5, 12]


def test_example_without_answer_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="document train:1 has nothing to learn"):
        examples_of(tmp_path, ["1+1=2", "1+1="])


def test_lost_characters_are_counted(tmp_path: Path) -> None:
    tokenizer = Regex(min_count=1, unmatched="drop")
    tokenizer.fit(["a b"])
    facts = store_of(tmp_path, ["a xyz é b"], tokenizer=tokenizer).facts
    assert {name: facts[name] for name in ("characters", "bytes", "words", "unknown_tokens", "unknown", "dropped")} == {
        "characters": 9,
        "bytes": 10,
        "words": 5,
        "unknown_tokens": 1,
        "unknown": 3,
        "dropped": 1,
    }
