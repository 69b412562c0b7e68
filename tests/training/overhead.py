"""Measure the framework's overhead: a loopkit step of the 44M recipe against the same model in a bare loop.

    python -m tests.training.overhead --steps 15

Both step in turn on the same random tokens, with the same autocast, clipping and ``torch.optim.AdamW``; the bare loop
has no DeepSpeed and no metrics. Prints medians in seconds, by the clock and of processor time, and their ratios.
It takes about five minutes on two idle cores.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from loopkit.data import Examples, Prepared
from loopkit.loop import Loops
from loopkit.model import LoopedModel, build_model
from loopkit.objective import Objective, build_objective
from loopkit.recipe import Recipe, load_recipe
from loopkit.runs.folder import RunFolder
from loopkit.runs.metrics import MetricsLog
from loopkit.training.bench import random_tokens
from loopkit.training.build import build_training
from loopkit.training.display.progress import Display
from loopkit.training.display.tracking import Trackers
from loopkit.training.distributed.process_group import join
from loopkit.training.distributed.watchdog import Watchdog
from loopkit.training.signals import Signals
from loopkit.training.trainer import Trainer

ROOT = Path(__file__).resolve().parents[2]
VOCABULARY = 20_000


def build(recipe: Recipe) -> tuple[LoopedModel, Objective]:
    """The model of a recipe, always with the same first weights."""
    model = build_model(recipe.model, vocabulary=VOCABULARY, max_length=recipe.data.length, max_loops=4, seed=0)
    return model.train(), build_objective(recipe.objective)


def bare(recipe: Recipe, examples: Examples, batch: int, *, fused: bool | None) -> Callable[[int], None]:
    """Return a training step in plain torch."""
    model, objective = build(recipe)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01, fused=fused)

    def step(number: int) -> None:
        rows = examples.batch([index % len(examples) for index in range(number * batch, (number + 1) * batch)])
        with torch.autocast("cpu", torch.bfloat16, enabled=recipe.train.precision == "bf16_autocast"):
            loss = objective(model.run(rows, Loops.fixed(4)), number).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()

    return step


def trainer(recipe: Recipe, prepared: Prepared, folder: Path) -> Trainer:
    """Return loopkit's trainer on the same tokens."""
    training = build_training(recipe, folder=RunFolder(folder), process=join("cpu"), prepared=prepared)
    watchdog = Watchdog(None, folder / "hung.txt")
    return Trainer(training, Display(Console(file=io.StringIO())), Trackers({}, print), watchdog)


def measure(steps: int, batch: int, precision: str) -> dict[str, Any]:
    """Median seconds of a step of each."""
    overrides = [f"train.precision={precision}", f"train.batch={batch}", f"train.micro_batch={batch}"]
    recipe = load_recipe(ROOT / "recipes" / "wikitext_44m_raw.yaml", (), [*overrides, "train.steps=10000"])
    seconds: dict[str, list[float]] = {"loopkit": [], "bare": [], "bare, fused": []}
    busy: dict[str, list[float]] = {name: [] for name in seconds}
    with tempfile.TemporaryDirectory() as folder, Signals() as signals:
        prepared = random_tokens(VOCABULARY, recipe.data.length, Path(folder))
        examples = prepared.splits["train"].examples(recipe.data.length, recipe.data.stride)
        framework = trainer(recipe, prepared, Path(folder))
        with MetricsLog(Path(folder) / "metrics.jsonl") as log:
            runs: dict[str, Callable[[int], object]] = {
                "loopkit": lambda number: framework.step(signals, log),
                "bare": bare(recipe, examples, batch, fused=None),
                "bare, fused": bare(recipe, examples, batch, fused=True),
            }
            for number in range(steps + 1):
                for name, step in runs.items():
                    start_time, worked = time.perf_counter(), time.process_time()
                    step(number)
                    if number > 0:  # the first one warms up
                        seconds[name].append(time.perf_counter() - start_time)
                        busy[name].append(time.process_time() - worked)
    facts = {"steps": steps, "batch": batch, "precision": precision, "threads": torch.get_num_threads()}
    # processor time is more reliable than the clock on a shared machine
    return facts | {"clock": _compare(seconds), "processor": _compare(busy)}


def _compare(seconds: dict[str, list[float]]) -> dict[str, float]:
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return medians | {f"loopkit / {name}": medians["loopkit"] / medians[name] for name in ("bare", "bare, fused")}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--precision", default="bf16_autocast")
    options = parser.parse_args()
    print(json.dumps(measure(options.steps, options.batch, options.precision), indent=2))
