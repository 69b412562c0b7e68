"""Train in tests, and compare two runs bit for bit."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from rich.console import Console
from safetensors.torch import load_file
from torch import Tensor

from loopkit.recipe import Recipe
from loopkit.runs import RunFolder, read_metrics
from loopkit.training.train import TrainingResult, train

CLOCK = {"tokens_per_s", "mfu", "step_s", "peak_memory_bytes"}


def fit(
    recipe: Recipe, folder: Path, *, resume: bool = False, console: Console | None = None, **options: Any
) -> TrainingResult:
    """Train with a cache next to the run's folder."""
    shown = Console(file=io.StringIO()) if console is None else console
    cache = folder.parent / "cache"
    return train(recipe, folder=RunFolder(folder), resume=resume, console=shown, cache=cache, **options)


def lines(folder: Path) -> list[dict[str, Any]]:
    """Read the metrics except for timings."""
    return [{key: line[key] for key in line if key not in CLOCK} for line in read_metrics(RunFolder(folder).metrics)]


def tensors(folder: Path, step: int) -> dict[str, Tensor]:
    """Load every tensor of a checkpoint: weights, optimizer, generators."""
    checkpoint = RunFolder(folder).checkpoint(step)
    return {
        f"{file.stem}:{name}": tensor
        for file in sorted(checkpoint.glob("*.safetensors"))
        for name, tensor in load_file(file).items()
    }


def assert_same_bits(a: Path, b: Path, step: int) -> None:
    """Check that metrics and all tensors of a checkpoint are bitwise equal."""
    assert lines(a) == lines(b)
    one, two = tensors(a, step), tensors(b, step)
    assert one.keys() == two.keys()
    assert len(one) > 20
    for name in one:
        assert one[name].dtype == two[name].dtype
        assert one[name].equal(two[name]), name
