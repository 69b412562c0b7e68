"""The early-exit benchmark: calibrates on one slice, measures and times on another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from loopkit.components.exit import Depth, Exit
from loopkit.errors import UserError
from loopkit.evaluation.context import device_name, evaluation_mode, tokenizer_facts
from loopkit.evaluation.depth_sweep import last_loop
from loopkit.evaluation.early_exit.calibration import NEVER, Choice, choose, tabulate
from loopkit.evaluation.early_exit.result import UNITS, contender_figures, exit_row
from loopkit.evaluation.early_exit.slices import build_slices, count_tokens
from loopkit.evaluation.early_exit.timing import Contender, dynamic, fixed, race
from loopkit.evaluation.result import ModelSource, TrainedDepths, build_row
from loopkit.evaluation.settings import ExitBenchmarkSettings
from loopkit.plural import plural
from loopkit.recipe.depths import check_depths
from loopkit.runs.provenance import machine, now

if TYPE_CHECKING:
    from loopkit.data import Prepared
    from loopkit.model import LoopedModel


def exit_benchmark(
    model: LoopedModel,
    prepared: Prepared,
    exits: Mapping[str, Exit],
    settings: ExitBenchmarkSettings,
    *,
    trained: TrainedDepths | None = None,
    origin: ModelSource | None = None,
    progress: Callable[[str], None] = lambda message: None,
) -> dict[str, Any]:
    """Calibrate exits on one slice, and compare them on another with every fixed depth.

    The threshold of an exit is the one with the fewest loops whose perplexity on the calibration slice is at most
    ``1 + tolerance`` times that of all loops; one pass serves all thresholds and exits. Then every depth from 1 to
    ``loops`` and every exit runs the timed slice separately, in turns, and scores every token. The first run of each
    is a warm-up and not timed.

    Args:
        model: The model; it runs in evaluation mode on its own device and returns to its previous mode.
        prepared: Tokenizer and encoded splits.
        exits: Exits by name; without any, only the fixed depths are measured.
        settings: The slices, the calibration and the timing.
        trained: Depths of training; ``None``: unknown.
        origin: Where the model comes from.
        progress: Called with a message about the current stage.

    Raises:
        UserError: If a depth cannot be run, or there are too few sequences.

    Paper:
        arXiv:2606.24898, whose text this follows; its released code calibrates on the sequences that it times.
    """
    max_trained = model.max_loops if trained is None else trained.max
    loops = max_trained if settings.loops is None else settings.loops
    if loops < 2:
        raise UserError(f"an early exit needs at least 2 loops, not {loops}; set loops to 2 or more")
    check_depths(list(range(1, loops + 1)), model.max_depth)
    if settings.repeats < 1:
        raise UserError(f"repeats must be at least 1, not {settings.repeats}")
    window = model.max_length if settings.length is None else settings.length
    calibration, timed = build_slices(prepared, settings.split, settings.calibrate_on, window, settings.sequences)
    device = next(model.parameters()).device

    def last(k: int) -> int:
        return last_loop(k, settings.read_as, max_trained)

    with evaluation_mode(model, settings.dtype):
        progress("calibrating")
        table = tabulate(model, calibration.batches(settings.batch, device), exits, loops, last)
        choices = {
            name: choose(table, name, tolerance=settings.tolerance, thresholds=settings.thresholds) for name in exits
        }
        batches = timed.batches(settings.batch, device)
        contenders: dict[int | str, Contender] = {
            depth: fixed(model, batches, depth, last) for depth in range(1, loops + 1)
        }
        for name, exit in exits.items():
            contenders[name] = dynamic(model, batches, exit, choices[name].chosen.threshold, loops, last)
        timings = race(model, contenders, settings.repeats, progress)
    tokens, num_scored = count_tokens(batches), timed.tokens_scored
    frontier = [
        build_row(depth, trained, contender_figures(timings[depth], tokens, num_scored))
        | {"seconds": timings[depth].seconds}
        for depth in range(1, loops + 1)
    ]
    source = asdict(ModelSource() if origin is None else origin)
    return {
        "benchmark": "early_exit",
        **{name: value for name, value in source.items() if value is not None},
        "date": now(),
        "machine": machine() | {"threads": torch.get_num_threads()},
        "device": device_name(device),
        "dtype": settings.dtype,
        "batch": settings.batch,
        "window": window,
        "read_as": settings.read_as,
        "tokenizer": tokenizer_facts(prepared.tokenizer),
        **({} if trained is None else {"trained_depths": trained.to_json()}),
        "loops": loops,
        "tolerance": settings.tolerance,
        "calibration": calibration.to_json(),
        "timed": timed.to_json() | {"tokens": tokens},
        "frontier": frontier,
        "fixed": frontier[-1],
        "exits": {
            name: exit_row(exit, choices[name], timings[name], timings[loops], loops, tokens, num_scored)
            for name, exit in exits.items()
        },
        "units": UNITS,
        "notes": _notes(
            model,
            choices,
            {name: timings[name].scored.depth for name, exit in exits.items() if not isinstance(exit, Depth)},
        ),
    }


def _notes(model: LoopedModel, choices: Mapping[str, Choice], depths: Mapping[str, Tensor]) -> list[str]:
    """Return what a reader of the table must know.

    Args:
        model: The model.
        choices: Threshold of each exit.
        depths: ``[N]`` int64 of each exit that depends on the sequence, the loops that each timed sequence ran.
    """
    notes = [
        f"{name}: no threshold keeps the perplexity within the bound, so no sequence stops early"
        for name, choice in choices.items()
        if choice.chosen.threshold == NEVER
    ]
    for name, depth_N in depths.items():
        stops = depth_N.unique().tolist()
        if len(stops) == 1 and choices[name].chosen.threshold != NEVER:
            notes.append(
                f"{name}: of {plural(len(depth_N), 'sequence')}, all stop after loop {stops[0]}, so the exit acts as a "
                f"fixed depth of {stops[0]}; try another exit or a larger tolerance"
            )
    if not model.depth_free:
        notes.append(
            "a component of this model depends on the number of loops run: the state of a sequence that stops "
            "at loop k differs from that of a run of k loops"
        )
    return notes
