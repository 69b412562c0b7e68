"""Windows for training against the paper's own, and windows that score every token once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopkit.data.encoding.store import TokenStore
from loopkit.data.rows import IGNORE
from loopkit.data.windows import OnceWindows, Windows
from tests.data.toys import store_of


class CountingStore(TokenStore):
    """The tokens 0, 1, 2 ... without any file."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def read(self, start: int, stop: int) -> np.ndarray:
        assert 0 <= start <= stop <= self.size
        return np.arange(start, stop)


def test_windows_match_the_paper(golden_dir: Path) -> None:
    cases = json.loads((golden_dir / "readout_blind_spot/windows.json").read_text())["cases"]
    assert len(cases) == 15
    for case in cases:
        windows = Windows(CountingStore(case["n_tokens"]), case["seq_len"], case["stride"])
        rows = [windows.row(i) for i in range(len(windows))]
        assert len(windows) == case["count"]
        assert [int(row.tokens[0]) for row in rows] == case["starts"]
        assert len(rows[0].tokens) == case["first_input_len"]
        assert int(rows[-1].tokens[0]) == case["last_input_first"]
        assert int(rows[-1].labels[-1]) == case["last_label_last"]
        assert len(rows[-1].tokens) == case["last_input_len"]
        assert len(set(np.concatenate([row.labels for row in rows]).tolist())) == case["distinct_tokens_predicted"]
        assert all((row.labels == row.tokens + 1).all() for row in rows)


@settings(max_examples=300, deadline=None)
@given(st.integers(2, 80), st.integers(1, 20), st.data())
def test_every_token_but_the_first_is_scored_once(tokens: int, length: int, data: st.DataObject) -> None:
    stride = data.draw(st.integers(1, length))
    stop = data.draw(st.integers(2, tokens))
    windows = OnceWindows(CountingStore(tokens), length, stride, stop=stop)
    rows = [windows.row(i) for i in range(len(windows))]
    labels = np.concatenate([row.labels for row in rows])
    assert sorted(labels[labels != IGNORE].tolist()) == list(range(1, stop))
    assert windows.targets == stop - 1 == windows.scored(range(len(windows)))
    assert all((row.labels != IGNORE).any() and len(row.tokens) <= length for row in rows)
    for index, row in enumerate(rows):
        scored = row.labels != IGNORE
        np.testing.assert_array_equal(row.labels[scored], row.tokens[scored] + 1)
        assert windows.scored([index]) == scored.sum()
        if index:  # as much context as the window has room for
            assert int(np.argmax(scored)) == length - stride


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 80), st.integers(1, 20), st.integers(1, 20))
def test_scored_counts_training_labels(tokens: int, length: int, stride: int) -> None:
    windows = Windows(CountingStore(tokens), length, stride)
    assert windows.scored(range(len(windows))) == sum(len(windows.row(i).labels) for i in range(len(windows)))


def test_last_window_is_padded(tmp_path: Path) -> None:
    windows = OnceWindows(store_of(tmp_path, ["abcdefghij"]), 4, 4, stop=10, pad=256)
    batch = windows.batch(range(len(windows)))
    assert batch.tokens.shape == (3, 4)
    assert batch.labels[2].tolist() == [ord("j"), IGNORE, IGNORE, IGNORE]
    assert batch.positions[2].tolist() == [0, 2**30, 2**30, 2**30]
    assert batch.tokens[2].tolist() == [ord("i"), 256, 256, 256]
    assert batch.num_scored == windows.targets == 9


def test_short_text_is_not_padded() -> None:
    windows = OnceWindows(CountingStore(5), 256, 256, stop=5)
    assert windows.batch([0]).tokens.tolist() == [[0, 1, 2, 3]]


def test_invalid_windows_are_errors() -> None:
    with pytest.raises(ValueError, match="has 1 token, and a window needs at least two"):
        Windows(CountingStore(1), 8, 8)
    with pytest.raises(ValueError, match="scoring needs at least two"):
        OnceWindows(CountingStore(1), 8, 8, stop=1)
    with pytest.raises(ValueError, match=r"evaluate\.stride 9 is larger than the window \(8\)"):
        OnceWindows(CountingStore(30), 8, 9, stop=30)
