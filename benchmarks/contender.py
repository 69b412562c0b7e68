"""One contender in a process of its own, so that its peak memory is its own.

Reads a step number a line and answers with the seconds of that step; at the end of input, with its memory and profile.
"""

from __future__ import annotations

import argparse
import io
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal

import torch

from benchmarks.plain_loop import Shape, plain_step

RECIPE = Path(__file__).resolve().parents[1] / "recipes" / "wikitext_44m_raw.yaml"


def loopkit_step(
    shape: Shape, *, device: Literal["cpu", "cuda"], bf16: bool, compile: bool, checkpointing: bool, folder: Path
) -> Callable[[int], None]:
    """Return a step of loopkit's trainer, on random tokens."""
    from rich.console import Console

    from loopkit.recipe import load_recipe
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

    settings = {
        "train.precision": "bf16_autocast" if bf16 else "fp32",
        "train.batch": shape.batch,
        "train.micro_batch": shape.batch,
        "train.schedule": f"{{type: fixed, loops: {shape.loops}}}",
        "train.steps": 100_000,
        "train.compile": str(compile).lower(),
        "train.checkpointing": str(checkpointing).lower(),
        "data.length": shape.length,
        "data.stride": shape.length,
        "model.width": shape.width,
        "model.core": shape.layers,
        "model.block.attention.heads": shape.heads,
        "model.embedding.dropout": shape.dropout,
        "model.block.dropout": shape.dropout,
        "model.block.attention.dropout": shape.dropout,
    }
    recipe = load_recipe(RECIPE, (), [f"{key}={value}" for key, value in settings.items()])
    prepared = random_tokens(shape.vocabulary, shape.length, folder)
    training = build_training(recipe, folder=RunFolder(folder), process=join(device), prepared=prepared)
    display = Display(Console(file=io.StringIO()))
    trainer = Trainer(training, display, Trackers({}, print), Watchdog(None, folder / "hung.txt"))
    signals, log = Signals().__enter__(), MetricsLog(folder / "metrics.jsonl").__enter__()
    return lambda number: (trainer.step(signals, log), None)[1]


def resident(field: str) -> int:
    """Bytes of this process by a name of ``/proc/self/status``."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return int(status[field].split()[0]) * 1024


def main() -> None:
    """Answer on standard output until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=["plain", "loopkit"])
    parser.add_argument("shape", type=json.loads)
    for flag in ("bf16", "compile", "checkpointing", "profile"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args()
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever else prints must not mix with the answers
    shape = Shape(**options.shape)
    settings: dict[str, Any] = {"device": options.device, "bf16": options.bf16, "compile": options.compile}
    with tempfile.TemporaryDirectory() as folder:
        torch.ones(8, 8, device=options.device, requires_grad=True).mm(torch.ones(8, 8, device=options.device))
        if options.name == "plain":
            step = plain_step(shape, **settings)
        else:
            step = loopkit_step(shape, **settings, checkpointing=options.checkpointing, folder=Path(folder))
        idle = resident("VmRSS")  # with the weights, without gradients and optimizer state
        if options.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        profile: AbstractContextManager[Any] = torch.profiler.profile() if options.profile else nullcontext()
        with profile as profiler:
            for line in sys.stdin:
                start = time.perf_counter()
                step(int(line))
                print(json.dumps(time.perf_counter() - start), file=answers, flush=True)
        result: dict[str, Any] = {"peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - idle}
        if options.device == "cuda":
            result["peak_bytes"] = torch.cuda.max_memory_allocated()
        if profiler is not None:
            events = sorted(profiler.key_averages(), key=lambda event: -_self_time(event, options.device))
            total = sum(_self_time(event, options.device) for event in events)
            result["profile"] = {event.key: _self_time(event, options.device) / total for event in events[:20]}
        print(json.dumps(result), file=answers, flush=True)


def _self_time(event: Any, device: str) -> float:
    return float(event.self_device_time_total if device == "cuda" else event.self_cpu_time_total)


if __name__ == "__main__":
    main()
