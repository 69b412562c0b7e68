"""What the framework costs: a loopkit step of the 44M recipe against the same model in a bare loop.

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

import numpy as np
import torch
from rich.console import Console

from loopkit.components.tokenizer.bytes import Bytes
from loopkit.cost.flops import StepFlops
from loopkit.data import Examples, Row, Sampler, Steps
from loopkit.data.batch_sizes import BatchSizes
from loopkit.loop import Loops
from loopkit.model import LoopedModel, build_model
from loopkit.model.parameter_groups import parameter_groups
from loopkit.objective import Objective, build_objective
from loopkit.recipe import Recipe, load_recipe
from loopkit.runs.folder import RunFolder
from loopkit.runs.metrics import MetricsLog
from loopkit.training.checkpointing.checkpoint import TrainState
from loopkit.training.checkpointing.checkpoint_policy import CheckpointPolicy
from loopkit.training.display.progress import Display
from loopkit.training.display.throughput import Throughput
from loopkit.training.display.tracking import Trackers
from loopkit.training.distributed.process_group import join
from loopkit.training.distributed.watchdog import Watchdog
from loopkit.training.errors import Signals
from loopkit.training.step.deepspeed_config import deepspeed_config
from loopkit.training.step.engine import Engine
from loopkit.training.step.loop_sampling import LoopSampler
from loopkit.training.step.module import TrainingModule
from loopkit.training.trainer import Callbacks, StepPlan, Trainer

ROOT = Path(__file__).resolve().parents[2]
VOCABULARY = 20_000


class RandomTokens(Examples):
    """Windows of random tokens."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return 1000

    def row(self, index: int) -> Row:
        found = np.random.Generator(np.random.Philox(index)).integers(VOCABULARY, size=self.length + 1)
        return Row(found[:-1], found[1:])


def build(recipe: Recipe) -> tuple[LoopedModel, Objective]:
    """The model of a recipe, always with the same first weights."""
    model = build_model(recipe.model, vocabulary=VOCABULARY, max_length=recipe.data.length, max_loops=4, seed=0)
    return model.train(), build_objective(recipe.objective)


def bare(recipe: Recipe, examples: Examples, batch: int, *, fused: bool | None) -> Callable[[int], None]:
    """A step as anyone would write it."""
    model, objective = build(recipe)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01, fused=fused)

    def step(number: int) -> None:
        rows = examples.batch(range(number * batch, (number + 1) * batch))
        with torch.autocast("cpu", torch.bfloat16, enabled=recipe.train.precision == "bf16_autocast"):
            loss = objective(model.run(rows, Loops.fixed(4)), number).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()

    return step


def trainer(recipe: Recipe, examples: Examples, batch: int, folder: Path) -> Trainer:
    """The whole training loop, on the same tokens."""
    process, sizes = join("cpu"), BatchSizes.of(batch, batch, 1)
    model, objective = build(recipe)
    module = TrainingModule(model, objective, seed=0, precision=recipe.train.precision)
    optimizer = recipe.train.optimizer.build().build(parameter_groups(module))
    drawer = LoopSampler(recipe.train.schedule.build(), seed=0, per="step", backprop="all", num_steps=10_000)
    flops = StepFlops(model, objective.supervision, length=recipe.data.length, most=4)
    steps = Steps(examples, Sampler(len(examples), 0, shuffle=False), sizes)
    engine = Engine(module, optimizer, deepspeed_config(sizes, 1.0, {}), process)
    return Trainer(
        recipe=recipe,
        folder=RunFolder(folder),
        process=process,
        engine=engine,
        course=StepPlan(10_000, sizes, steps, drawer, recipe.train.lr.build(), flops),
        watchers=Callbacks(
            display=Display(Console(file=io.StringIO())),
            trackers=Trackers({}, print),
            speed=Throughput(1e12, process.device),
            evaluate=lambda step: None,
            evaluated=lambda step: True,
            watchdog=Watchdog(None, folder / "hung.txt"),
        ),
        keeper=CheckpointPolicy(recipe, RunFolder(folder), process, Bytes(), engine, print),
        place=TrainState(0, 0, 0, batch),
    )


def measure(steps: int, batch: int, precision: str) -> dict[str, Any]:
    """Median seconds of a step of each."""
    recipe = load_recipe(ROOT / "recipes" / "wikitext_44m_raw.yaml", (), [f"train.precision={precision}"])
    examples = RandomTokens(recipe.data.length)
    seconds: dict[str, list[float]] = {"loopkit": [], "bare": [], "bare, fused": []}
    busy: dict[str, list[float]] = {name: [] for name in seconds}
    with tempfile.TemporaryDirectory() as folder, Signals() as signals:
        ours = trainer(recipe, examples, batch, Path(folder))
        with MetricsLog(Path(folder) / "metrics.jsonl") as log:
            runs: dict[str, Callable[[int], object]] = {
                "loopkit": lambda number: ours.step(signals, log),
                "bare": bare(recipe, examples, batch, fused=None),
                "bare, fused": bare(recipe, examples, batch, fused=True),
            }
            for number in range(steps + 1):
                for name, step in runs.items():
                    began, worked = time.perf_counter(), time.process_time()
                    step(number)
                    if number > 0:  # the first one warms up
                        seconds[name].append(time.perf_counter() - began)
                        busy[name].append(time.process_time() - worked)
    facts = {"steps": steps, "batch": batch, "precision": precision, "threads": torch.get_num_threads()}
    # processor time says more than the clock where others use the machine
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
