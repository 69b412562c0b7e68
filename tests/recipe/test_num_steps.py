"""The number of optimizer steps from epochs, steps or tokens."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from loopkit.recipe.format import TrainConfig


@dataclass
class Train:
    batch: int = 64
    epochs: float | None = None
    steps: int | None = None
    tokens: int | None = None


@pytest.mark.parametrize(
    ("train", "expected"),
    [
        (Train(steps=600), 600),
        (Train(epochs=1), 16),  # 1000 examples in batches of 64, the last one straddling into the next epoch
        (Train(epochs=4), 63),
        (Train(epochs=0.001), 1),
        (Train(tokens=64 * 256 * 10), 10),
        (Train(tokens=64 * 256 * 10 + 1), 11),
        (Train(tokens=1), 1),
    ],
)
def test_steps_are_rounded_up(train: Train, expected: int) -> None:
    assert TrainConfig.num_steps(train, num_examples=1000, length=256) == expected  # type: ignore[arg-type]


def test_epochs_require_a_number_of_examples() -> None:
    assert TrainConfig.num_steps(Train(epochs=1), None, 256) is None  # type: ignore[arg-type]
    assert TrainConfig.num_steps(Train(tokens=64 * 256), None, 256) == 1  # type: ignore[arg-type]
