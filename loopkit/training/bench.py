"""Time optimizer steps of a recipe on the devices of this machine, with random tokens.

No data is read and no run is created. A step includes everything besides arithmetic: engine, clipping, optimizer,
batches, and the exchange of gradients between ranks.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from loopkit.components.source import Span
from loopkit.components.tokenizer.numbers import Numbers
from loopkit.cost.hardware import Ceiling, data_sheet_ceiling, matmul_dtype, measured_ceiling
from loopkit.data import Prepared, Report, Split
from loopkit.data.encoding.cache import CacheEntry
from loopkit.data.encoding.pieces import TextPiece
from loopkit.data.encoding.store import COUNTS, TokenStore, write_store
from loopkit.plural import plural
from loopkit.recipe import Recipe
from loopkit.runs.folder import RunFolder
from loopkit.runs.provenance import machine, versions
from loopkit.training.build import Training, build_training
from loopkit.training.display.throughput import peak_memory
from loopkit.training.distributed.process_group import Process
from loopkit.training.step.loop_sampling import LoopDraw
from loopkit.training.step.out_of_memory import explain_out_of_memory, suggest_smaller_step
from loopkit.training.warnings import warn_of_slow_bf16

NUM_SEQUENCES = 64
"""Sequences of random tokens; a larger batch repeats them."""

LATE_STEP = 1_000_000
"""An optimizer step after the start of every regularizer."""


def bench(
    recipe: Recipe,
    process: Process,
    *,
    vocabulary: int,
    loops: int | None = None,
    steps: int = 5,
    say: Callable[[str], None] = lambda message: None,
) -> dict[str, Any]:
    """Time optimizer steps of a recipe.

    The steps are those of the end of a run, with every regularizer active and every curriculum finished. All run the
    same number of loops, so that they are comparable. The first step is not counted: it loads kernels and allocates the
    optimizer state.

    Args:
        recipe: The resolved recipe. Its data, tokenizer and ``start_from`` are ignored.
        process: This rank.
        vocabulary: Number of tokens.
        loops: Loops of each step; ``None``: the schedule's mean, rounded.
        steps: Optimizer steps to time, >= 1.
        say: Prints a message.

    Returns:
        JSON: ``recipe``, ``recipe_hash``, ``device``, ``ranks``, ``precision``, ``loops``, ``backprop``,
        ``micro_batch``, ``accumulation``, ``step_s`` {``median``, ``min``, ``max``}, ``tokens_per_s``,
        ``flops_per_step`` and ``mfu`` (absent if FLOPs cannot be counted; those of regularizers never are),
        ``ceiling`` (measured before and after the steps; the denominator of ``mfu``), ``data_sheet`` (of the device,
        if known), ``peak_memory_bytes``, ``machine``, ``packages``.

    Raises:
        UserError: If the recipe does not fit the devices, or its model has no such loop.
        OutOfMemory: If a step runs out of memory.
    """
    recipe = replace(recipe, train=replace(recipe.train, start_from=None))
    with tempfile.TemporaryDirectory() as folder:
        prepared = random_tokens(vocabulary, recipe.data.length, Path(folder))
        training = build_training(recipe, folder=RunFolder(Path(folder)), process=process, prepared=prepared)
        plan = training.plan
        num_loops = max(round(training.schedule.mean), 1) if loops is None else loops
        draw = replace(plan.sampler.draw(plan.num_steps - 1, plan.sizes), counts=np.full(1, num_loops), per="step")
        remedy = suggest_smaller_step(recipe, plan.sizes)
        with closing(training.engine), explain_out_of_memory("the benchmark", remedy, None):
            before = _measure_ceiling(training)
            for message in warn_of_slow_bf16(process.device, before):
                say(message)
            size = f"{plural(plan.sizes.batch, 'sequence')} at {plural(num_loops, 'loop')}"
            say(f"one step to warm up and {steps} to time, each of {size}")
            seconds = list(_timed_steps(training, draw, steps, say))
            after = _measure_ceiling(training)
    return _to_json(training, draw, seconds, max(before, after, key=lambda ceiling: ceiling.flops_per_s))


def random_tokens(vocabulary: int, length: int, folder: Path) -> Prepared:
    """Write a training split of random tokens into an empty folder."""
    tokenizer = Numbers(size=vocabulary)
    rng = np.random.default_rng(0)
    sequences = rng.integers(vocabulary, size=(NUM_SEQUENCES, length + 1))
    pieces = (TextPiece((Span(" ".join(map(str, row))),), 0, 0, "") for row in sequences)
    facts = write_store(folder, pieces, tokenizer, examples=False, progress=lambda characters: None)
    report = Report(
        tokens=facts["tokens"], documents=NUM_SEQUENCES, fingerprint="random", **{name: facts[name] for name in COUNTS}
    )
    return Prepared(tokenizer, {"train": Split("train", TokenStore(CacheEntry(folder, facts)), "stream", report)})


def _timed_steps(training: Training, draw: LoopDraw, steps: int, say: Callable[[str], None]) -> Iterator[float]:
    """Yield the seconds of each step except the first."""
    for step in range(steps + 1):
        seconds = _time_step(training, draw, step)
        say(f"{f'step {step} of {steps}' if step else 'warm-up'}: {seconds:.3g} s")
        if step:
            yield seconds


def _time_step(training: Training, draw: LoopDraw, step: int) -> float:
    """Return the seconds of one optimizer step, as the trainer runs it."""
    process, engine, plan = training.process, training.engine, training.plan
    process.barrier()
    start = _now(process.device)
    for micro_step, batch in enumerate(plan.data.step(step).batches()):
        loops = draw.loops(plan.sizes, process.rank, micro_step)
        share = 1 / plan.sizes.accumulation
        engine.micro_step(batch.to(process.device, non_blocking=True), loops, LATE_STEP + step, share)
        if micro_step + 1 < plan.sizes.accumulation:
            engine.next_micro_step()
    engine.update(plan.lr.at(0, plan.num_steps))
    if training.average is not None:
        training.average.update(plan.num_steps)
    return _now(process.device) - start


def _measure_ceiling(training: Training) -> Ceiling:
    """Measure the FLOP/s of the device now, rather than look them up."""
    return measured_ceiling(training.process.device, matmul_dtype(training.recipe.train.precision))


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _to_json(training: Training, draw: LoopDraw, seconds: list[float], ceiling: Ceiling) -> dict[str, Any]:
    recipe, process, plan = training.recipe, training.process, training.plan
    median, tokens = statistics.median(seconds), plan.sizes.batch * recipe.data.length
    total = draw.total(plan.sizes)
    result: dict[str, Any] = {
        "recipe": recipe.name,
        "recipe_hash": recipe.hash,
        "device": ceiling.device,
        "ranks": process.world,
        "precision": recipe.train.precision,
        "loops": total,
        "backprop": draw.backprop_of(total),
        "micro_batch": plan.sizes.micro,
        "accumulation": plan.sizes.accumulation,
        "step_s": {"median": median, "min": min(seconds), "max": max(seconds)},
        "tokens_per_s": tokens / median,
        "ceiling": ceiling.to_json(),
        "peak_memory_bytes": peak_memory(process.device),
        "machine": machine(),
        "packages": versions(),
    }
    if plan.flops is not None:
        result["flops_per_step"] = plan.flops.step(draw.pairs, tokens)
        result["mfu"] = result["flops_per_step"] / median / (ceiling.flops_per_s * process.world)
    data_sheet = data_sheet_ceiling(process.device, matmul_dtype(recipe.train.precision))
    if data_sheet is not None:
        result["data_sheet"] = data_sheet.to_json()
    return result
