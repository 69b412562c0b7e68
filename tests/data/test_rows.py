"""Rows become batches, and a step has one digest however it is split."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from loopkit import loop
from loopkit.data.rows import IGNORE, PAD, Row, stack, step_sha
from loopkit.data.windows import Windows
from tests.data.toys import store_of


def test_constants_equal_those_of_loop() -> None:
    assert (IGNORE, PAD) == (loop.IGNORE, loop.PAD)


def test_rows_are_padded_on_the_right() -> None:
    rows = [Row(np.array([5, 6, 7]), np.array([6, 7, 8])), Row(np.array([9]), np.array([1]))]
    tokens, labels, positions = stack(rows, pad=3)
    assert tokens.tolist() == [[5, 6, 7], [9, 3, 3]]
    assert labels.tolist() == [[6, 7, 8], [1, IGNORE, IGNORE]]
    assert positions.tolist() == [[0, 1, 2], [0, PAD, PAD]]
    assert stack(rows, pad=3, width=5)[0].shape == (2, 5)
    assert {array.dtype for array in (tokens, labels, positions)} == {np.dtype(np.int64)}


def test_batch_sample_is_the_stream_position(tmp_path: Path) -> None:
    windows = Windows(store_of(tmp_path, ["abcdefghijklm"]), 4, 4)
    assert windows.batch([2, 0]).sample.tolist() == [2, 0]
    batch = windows.batch([2, 0], range(100, 102))
    assert batch.sample.tolist() == [100, 101]
    assert batch.tokens[1].tolist() == list(b"abcd")
    assert batch.labels[1].tolist() == list(b"bcde")
    assert batch.in_order


@pytest.mark.parametrize(("indices", "sample"), [([0, 1], [0, 2]), ([1, 0], [0, 1]), ([0, 2], [0, 1])])
def test_digest_depends_on_sequences_and_positions(tmp_path: Path, indices: list[int], sample: list[int]) -> None:
    windows = Windows(store_of(tmp_path, ["abcdefghijklm"]), 4, 4)
    assert step_sha(windows, [0, 1], [0, 1]) == step_sha(windows, [0, 1], [0, 1])
    assert step_sha(windows, indices, sample) != step_sha(windows, [0, 1], [0, 1])
