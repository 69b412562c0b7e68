from __future__ import annotations

from loopkit.inference.prompts import left_pad, sample_key
from loopkit.loop import IGNORE, PAD


def test_left_padding_keeps_positions() -> None:
    batch = left_pad([[5, 6], [7], [1, 2, 3]], [10, 11, 12], "cpu")
    assert batch.tokens.tolist() == [[0, 5, 6], [0, 0, 7], [1, 2, 3]]
    assert batch.positions.tolist() == [[PAD, 0, 1], [PAD, PAD, 0], [0, 1, 2]]
    assert batch.sample.tolist() == [10, 11, 12]
    assert (batch.labels == IGNORE).all()
    assert batch.in_order is False
    assert left_pad([[1, 2], [3, 4]], [0, 1], "cpu").in_order is True


def test_prompts_have_distinct_sample_numbers() -> None:
    numbers = {sample_key(prompt) for prompt in ([1], [2], [1, 2], [12], [2, 1], [1, 2, 0])}
    assert len(numbers) == 6
    assert all(0 <= number < 2**63 for number in numbers)
    assert sample_key([1, 2]) == sample_key((1, 2))
