"""The DeepSpeed configuration: complete, with the user's keys, except those that the recipe sets."""

from __future__ import annotations

import json

import pytest

from loopkit.data.batch_sizes import BatchSizes
from loopkit.recipe.validation.deepspeed import OWNED_KEYS
from loopkit.training.step.deepspeed_config import deepspeed_config

SIZES = BatchSizes.of(64, 8, 1)


def test_clipping_is_always_written() -> None:
    assert deepspeed_config(SIZES, None, {})["gradient_clipping"] == 0.0
    assert deepspeed_config(SIZES, 0.5, {})["gradient_clipping"] == 0.5


def test_keys_of_the_user_are_merged_into_maps() -> None:
    config = deepspeed_config(SIZES, 1.0, {"zero_optimization": {"stage": 2}, "wall_clock_breakdown": True})
    assert config["zero_optimization"]["stage"] == 2
    assert config["zero_optimization"]["contiguous_gradients"] is True
    assert config["wall_clock_breakdown"] is True
    assert json.loads(json.dumps(config)) == config


@pytest.mark.parametrize("key", sorted(OWNED_KEYS))
def test_keys_set_by_the_recipe_are_refused(key: str) -> None:
    with pytest.raises(ValueError, match=OWNED_KEYS[key]):
        deepspeed_config(SIZES, 1.0, {key: 1})
