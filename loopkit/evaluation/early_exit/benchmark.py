"""What early exit saves, and what it costs: calibrated on one slice, measured and timed on another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch

from loopkit.components.exit import Exit
from loopkit.errors import UserError
from loopkit.evaluation.context import Dtype, device_name, ready, tokenizer_facts
from loopkit.evaluation.depth_sweep import ReadAs, reading
from loopkit.evaluation.early_exit.calibration import NEVER, Choice, choose, tabulate
from loopkit.evaluation.early_exit.result import UNITS, contest, exit_row
from loopkit.evaluation.early_exit.slices import real_tokens, two_slices
from loopkit.evaluation.early_exit.timing import Contender, dynamic, fixed, race
from loopkit.evaluation.result import ModelSource, TrainedDepths, row_of
from loopkit.recipe.depths import check_depths
from loopkit.runs.provenance import machine, now

if TYPE_CHECKING:
    from loopkit.data import Prepared
    from loopkit.model import LoopedModel
    from loopkit.recipe.format import EvaluateConfig


def exit_benchmark(
    model: LoopedModel,
    prepared: Prepared,
    settings: EvaluateConfig,
    exits: Mapping[str, Exit],
    *,
    loops: int | None = None,
    sequences: int | None = None,
    calibrate_on: str | None = None,
    length: int | None = None,
    split: str | None = None,
    batch: int | None = None,
    device: torch.device | str | None = None,
    dtype: Dtype = "fp32",
    read_as: ReadAs = "depth",
    trained: TrainedDepths | None = None,
    origin: ModelSource | None = None,
    tolerance: float = 0.01,
    thresholds: int = 51,
    repeats: int = 3,
    progress: Callable[[str], None] = lambda doing: None,
) -> dict[str, Any]:
    """Calibrate exits on one slice, and measure them on another against every fixed depth.

    Each exit's threshold is the one with the fewest loops whose perplexity on the calibration slice is at most
    ``1 + tolerance`` times that of all loops there; one pass serves all thresholds and exits. Then every depth from 1
    to ``loops`` and every exit runs the timed slice by itself, in turns, each scoring every token. The first run of
    each warms up and is not timed.

    Args:
        model: The model; put into evaluation mode, and given back in the mode it had.
        prepared: Tokenizer and encoded splits.
        settings: The recipe's ``evaluate`` section, for its split and batch.
        exits: What is tried, by name; without any, the fixed depths alone are measured.
        loops: Most loops, K >= 2; ``None``: the most trained.
        sequences: In each slice; ``None``: 160, or half of what there is.
        calibrate_on: Another split to calibrate on; ``None``: the sequences before those that are timed.
        length: Inputs of a window; ``None``: as many as the model takes. Windows do not overlap.
        split: Where to time, instead of the settings' split.
        batch: Sequences per forward pass, instead of the settings'.
        device: Where the model is moved before it runs; ``None``: it stays where it is.
        dtype: ``fp32``, or ``bf16_autocast`` for matrix products in bf16.
        read_as: ``depth`` reads loop k as the last one of a run of k; ``trained`` as a run of the most trained loops
            reads it.
        trained: Depths of training; ``None``: unknown.
        origin: Where the model came from.
        tolerance: Acceptable rise of the perplexity, as a share, >= 0.
        thresholds: How many quantiles of an exit's scores are tried.
        repeats: Timed runs of each contender, >= 1.
        progress: Called with what is being done, in words.

    Raises:
        ValueError: If a depth cannot be run, or there are too few sequences.

    Paper:
        arXiv:2606.24898, whose text this follows; its released code calibrates on the sequences that it times.
    """
    most = model.max_loops if trained is None else trained.max
    loops = most if loops is None else loops
    if loops < 2:
        raise UserError(f"with {loops} loops at most there is nowhere to exit early; give loops of 2 or more")
    check_depths(list(range(1, loops + 1)), model.max_depth)
    if repeats < 1:
        raise UserError(f"nothing is timed in {repeats} repeats; give 1 or more")
    window = model.max_length if length is None else length
    calibration, timed = two_slices(prepared, split or settings.split, calibrate_on, window, sequences)
    size = settings.batch if batch is None else batch
    place = next(model.parameters()).device if device is None else torch.device(device)

    def last(k: int) -> int:
        return reading(k, read_as, most)

    with ready(model, place, dtype):
        progress("calibrating")
        table = tabulate(model, calibration.batches(size, place), exits, loops, last)
        choices = {name: choose(table, name, tolerance=tolerance, thresholds=thresholds) for name in exits}
        batches = timed.batches(size, place)
        contenders: dict[int | str, Contender] = {
            depth: fixed(model, batches, depth, last) for depth in range(1, loops + 1)
        }
        for name, exit in exits.items():
            contenders[name] = dynamic(model, batches, exit, choices[name].chosen.threshold, loops, last)
        outcomes = race(model, contenders, repeats, progress)
    tokens, scored = real_tokens(batches), timed.tokens_scored
    frontier = [
        row_of(depth, trained, contest(outcomes[depth], tokens, scored)) | {"seconds": outcomes[depth].seconds}
        for depth in range(1, loops + 1)
    ]
    return {
        "benchmark": "early_exit",
        **{
            name: value
            for name, value in asdict(ModelSource() if origin is None else origin).items()
            if value is not None
        },
        "date": now(),
        "machine": machine() | {"threads": torch.get_num_threads()},
        "device": device_name(place),
        "dtype": dtype,
        "batch": size,
        "window": window,
        "read_as": read_as,
        "tokenizer": tokenizer_facts(prepared.tokenizer),
        **({} if trained is None else {"trained_depths": trained.to_json()}),
        "loops": loops,
        "tolerance": tolerance,
        "calibration": calibration.to_json(),
        "timed": timed.to_json() | {"tokens": tokens},
        "frontier": frontier,
        "fixed": frontier[-1],
        "exits": {
            name: exit_row(exit, choices[name], outcomes[name], outcomes[loops], loops, tokens, scored)
            for name, exit in exits.items()
        },
        "units": UNITS,
        "notes": _notes(model, choices),
    }


def _notes(model: LoopedModel, choices: Mapping[str, Choice]) -> list[str]:
    notes = [
        f"{name}: no threshold kept the perplexity within bounds, so no sequence stops early"
        for name, choice in choices.items()
        if choice.chosen.threshold == NEVER
    ]
    if not model.depth_free:
        notes.append(
            "a component of this model depends on the number of loops run: a sequence that stops early at loop k does "
            "not hold the state of a run of k loops"
        )
    return notes
