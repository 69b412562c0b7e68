"""Reject settings of averaged and of initial weights that exclude each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from loopkit.recipe.node import Path, Problem, value_at
from loopkit.recipe.resolve import Resolver


def _problem(walk: Resolver, path: Path, message: str, hint: str, other: Path) -> Problem:
    return Problem(walk.origins[path], path, message, hint, (path, other))


def _ema(walk: Resolver, values: dict[str, Any]) -> Iterator[Problem]:
    path, stage = ("train", "ema", "decay"), ("train", "deepspeed", "zero_optimization", "stage")
    if value_at(values, path) is not None and value_at(values, stage) == 3:
        message = "ZeRO-3 cuts every weight into parts, and the average is of whole weights"
        yield _problem(walk, path, message, f"set {'.'.join(stage)} to 2, 1 or 0", stage)


def _start_optimizer(walk: Resolver, values: dict[str, Any]) -> Iterator[Problem]:
    path, weights = ("train", "start_optimizer"), ("train", "start_weights")
    if value_at(values, path) is True and value_at(values, weights) == "ema":
        message = "the optimizer state belongs to the trained weights, not to their average"
        yield _problem(walk, path, message, "set it to false, or train.start_weights to trained", weights)


RULES = (_ema, _start_optimizer)
