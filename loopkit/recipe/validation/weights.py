"""Reject settings of averaged and of initial weights that exclude each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from loopkit.recipe.node import Path, Problem, value_at
from loopkit.recipe.resolve import Resolver


def _problem(walk: Resolver, path: Path, message: str, hint: str, other: Path) -> Problem:
    return Problem(walk.origins[path], path, message, hint, (path, other))


def _ema(walk: Resolver, values: dict[str, Any]) -> Iterator[Problem]:
    """Yield a problem if ZeRO-3 keeps weights, or copies of them, where the average does not reach them."""
    path, zero = ("train", "ema", "decay"), ("train", "deepspeed", "zero_optimization")
    if value_at(values, path) is None or value_at(values, (*zero, "stage")) != 3:
        return
    offload, copies = (*zero, "offload_param", "device"), (*zero, "zero_hpz_partition_size")
    if value_at(values, offload) == "nvme":
        message = f"the average does not reach weights that {'.'.join(offload)} keeps on disk"
        yield _problem(walk, path, message, "set it to cpu or none", offload)
    if value_at(values, copies) not in (None, 1):
        message = f"{'.'.join(copies)} keeps a second copy of the weights, which the average would not replace"
        yield _problem(walk, path, message, "remove it", copies)


def _start_optimizer(walk: Resolver, values: dict[str, Any]) -> Iterator[Problem]:
    path, weights = ("train", "start_optimizer"), ("train", "start_weights")
    if value_at(values, path) is True and value_at(values, weights) == "ema":
        message = "the optimizer state belongs to the trained weights, not to their average"
        yield _problem(walk, path, message, "set it to false, or train.start_weights to trained", weights)


RULES = (_ema, _start_optimizer)
