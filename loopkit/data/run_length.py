"""Number of optimizer steps of a run."""

from __future__ import annotations

import math

from loopkit.recipe.format import TrainConfig


def num_steps(train: TrainConfig, num_examples: int, length: int) -> int:
    """Compute the number of optimizer steps of a run, rounded up, at least 1.

    Args:
        train: Sets epochs, steps or tokens.
        num_examples: Windows or examples in one epoch.
        length: Tokens in one of them.
    """
    if train.steps is not None:
        return train.steps
    if train.epochs is not None:
        return max(math.ceil(train.epochs * num_examples / train.batch), 1)
    assert train.tokens is not None, "a resolved recipe has one of epochs, steps and tokens"
    return max(math.ceil(train.tokens / (train.batch * length)), 1)
