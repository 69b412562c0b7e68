"""How fast a recipe trains on the devices at hand: whole optimizer steps on random tokens, timed.

No data is read and no run is made. What a step costs beside arithmetic is in it: the engine, clipping, the optimizer,
batches, and between ranks the exchange of gradients.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from loopkit.components.source import Span
from loopkit.components.tokenizer.numbers import Numbers
from loopkit.cost.ceiling import Ceiling, ceiling, matmul_rate
from loopkit.data import Prepared, Report, Split
from loopkit.data.encoding.cache import CacheEntry
from loopkit.data.encoding.pieces import TextPiece
from loopkit.data.encoding.store import COUNTS, TokenStore, write_store
from loopkit.recipe import Recipe
from loopkit.runs.folder import RunFolder
from loopkit.runs.provenance import machine, versions
from loopkit.training.display.throughput import peak_memory
from loopkit.training.distributed.process_group import Process
from loopkit.training.setup import Setup
from loopkit.training.step.engine import Engine
from loopkit.training.step.loop_sampling import LoopDraw
from loopkit.training.step.out_of_memory import explained, smaller_step
from loopkit.training.trainer import StepPlan
from loopkit.training.warnings import slow_arithmetic

WINDOWS = 64
"""Sequences of random tokens; a batch that needs more takes them again."""

LATE = 1_000_000
"""Optimizer steps that are taken to be done: by then every regularizer has begun."""


def bench(
    recipe: Recipe,
    process: Process,
    *,
    vocabulary: int,
    loops: int | None = None,
    steps: int = 5,
    told: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Time optimizer steps of a recipe.

    The steps are those of the end of a run: every regularizer has begun and every curriculum is over. All run the same
    number of loops, so that they compare. The first one is not counted: it loads kernels and makes the optimizer's
    state.

    Args:
        recipe: The resolved recipe. Its data, tokenizer and ``start_from`` do not matter.
        process: Which rank this is.
        vocabulary: Number of tokens.
        loops: Loops of each step; ``None``: the schedule's mean, rounded.
        steps: Optimizer steps to time, >= 1.
        told: Takes what is about to happen and what has, in sentences.

    Returns:
        JSON: ``recipe``, ``recipe_hash``, ``device``, ``ranks``, ``precision``, ``loops``, ``backprop``,
        ``micro_batch``, ``accumulation``, ``step_s`` {``median``, ``min``, ``max``}, ``tokens_per_s``,
        ``flops_per_step`` and ``mfu`` (absent where FLOPs cannot be counted; those of regularizers never are),
        ``ceiling`` (measured beside the steps: what ``mfu`` is a share of), ``data_sheet`` (the device's, where known),
        ``peak_memory_bytes``, ``machine``, ``packages``.

    Raises:
        ValueError: If the recipe does not fit the devices, or its model has no such loop.
        OutOfMemory: If a step needs more memory than there is.
    """
    recipe = replace(recipe, train=replace(recipe.train, start_from=None))
    with tempfile.TemporaryDirectory() as folder:
        prepared = random_tokens(vocabulary, recipe.data.length, Path(folder))
        setup = Setup(recipe, RunFolder(Path(folder)), process, prepared, None)
        course = setup.course()
        count = max(round(setup.schedule.mean), 1) if loops is None else loops
        draw = replace(course.drawer.draw(course.num_steps - 1, course.sizes), counts=np.full(1, count), per="step")
        with explained("the benchmark", smaller_step(recipe, course.sizes), None), _engine(setup) as engine:
            before = _measured_ceiling(setup)
            for text in slow_arithmetic(process.device, before):
                told(text)
            told(f"one step to warm up and {steps} to time, each of {course.sizes.batch} sequences at {count} loops")
            seconds = list(_timed(engine, course, draw, process, steps, told))
            after = _measured_ceiling(setup)
    top = max(before, after, key=lambda found: found.flops_per_s)
    return _result(setup, course, draw, seconds, top)


def random_tokens(vocabulary: int, length: int, folder: Path) -> Prepared:
    """A training split of random tokens, written into an empty folder."""
    tokenizer = Numbers(size=vocabulary)
    rng = np.random.default_rng(0)
    drawn = rng.integers(vocabulary, size=(WINDOWS, length + 1))
    pieces = (TextPiece((Span(" ".join(map(str, row))),), 0, 0, "") for row in drawn)
    facts = write_store(folder, pieces, tokenizer, examples=False, progress=lambda characters: None)
    report = Report(
        tokens=facts["tokens"], documents=WINDOWS, fingerprint="random", **{name: facts[name] for name in COUNTS}
    )
    return Prepared(tokenizer, {"train": Split("train", TokenStore(CacheEntry(folder, facts)), "stream", report)})


@contextmanager
def _engine(setup: Setup) -> Iterator[Engine]:
    engine = setup.engine(verbose=False)
    try:
        yield engine
    finally:
        engine.close()


def _timed(
    engine: Engine, course: StepPlan, draw: LoopDraw, process: Process, steps: int, told: Callable[[str], None]
) -> Iterator[float]:
    """Seconds of each step but the first."""
    for number in range(steps + 1):
        seconds = _step(engine, course, draw, process, number)
        told(f"{f'step {number} of {steps}' if number else 'warm-up'}: {seconds:.3g} s")
        if number:
            yield seconds


def _step(engine: Engine, course: StepPlan, draw: LoopDraw, process: Process, number: int) -> float:
    """Seconds of one optimizer step, as training takes it."""
    process.barrier()
    began = _now(process.device)
    data = course.steps.step(number)
    for micro_step, batch in enumerate(data.batches()):
        loops = draw.loops(course.sizes, process.rank, micro_step)
        share = 1 / course.sizes.accumulation
        engine.micro_step(batch.to(process.device, non_blocking=True), loops, LATE + number, share)
        if micro_step + 1 < course.sizes.accumulation:
            engine.next_micro_step()
    engine.update(course.rate.at(0, course.num_steps))
    return _now(process.device) - began


def _measured_ceiling(setup: Setup) -> Ceiling:
    """What the device does now, and not what its data sheet says."""
    narrow = setup.recipe.train.precision == "bf16_autocast"
    dtype, device = torch.bfloat16 if narrow else torch.float32, setup.process.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return Ceiling(matmul_rate(device, dtype, 0.5), "matmul", name, str(dtype).removeprefix("torch."))


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _result(setup: Setup, course: StepPlan, draw: LoopDraw, seconds: list[float], top: Ceiling) -> dict[str, Any]:
    recipe, process, sizes = setup.recipe, setup.process, course.sizes
    median, tokens = statistics.median(seconds), sizes.batch * recipe.data.length
    total = draw.total(sizes)
    found: dict[str, Any] = {
        "recipe": recipe.name,
        "recipe_hash": recipe.hash,
        "device": top.device,
        "ranks": process.world,
        "precision": recipe.train.precision,
        "loops": total,
        "backprop": draw.backprop_of(total),
        "micro_batch": sizes.micro,
        "accumulation": sizes.accumulation,
        "step_s": {"median": median, "min": min(seconds), "max": max(seconds)},
        "tokens_per_s": tokens / median,
        "ceiling": top.to_json(),
        "peak_memory_bytes": peak_memory(process.device),
        "machine": machine(),
        "packages": versions(),
    }
    if course.flops is not None:
        found["flops_per_step"] = course.flops.step(draw.pairs, tokens)
        found["mfu"] = found["flops_per_step"] / median / (top.flops_per_s * process.world)
    known = ceiling(process.device, getattr(torch, top.dtype), 0.0)
    return found | ({"data_sheet": known.to_json()} if known.source == "table" else {})
