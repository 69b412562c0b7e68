"""Train a recipe: check, build, train to the last step, and resume after each rewind."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path

import torch
from rich.console import Console

from loopkit.data import Prepared, check_same_data, located, prepare, run_tokenizer
from loopkit.evaluation.audit.preflight import preflight
from loopkit.recipe import Recipe
from loopkit.recipe.validation.packages import require_packages
from loopkit.recipe.validation.warnings import ineffective
from loopkit.runs.checkpoint import TOKENIZER
from loopkit.runs.folder import RunFolder
from loopkit.runs.lock import held
from loopkit.runs.provenance import read_provenance
from loopkit.training.build import build_training
from loopkit.training.checkpointing import checkpoint
from loopkit.training.checkpointing.resume import check_plugins, check_same
from loopkit.training.checkpointing.resume_point import ResumePoint, newest_resume_point, rewind_run
from loopkit.training.checkpointing.start_from import StartPoint, find_start, start_tokenizer
from loopkit.training.display.progress import Display
from loopkit.training.display.tracking import Trackers
from loopkit.training.distributed.process_group import Process, join
from loopkit.training.distributed.watchdog import Watchdog
from loopkit.training.evaluation_hook import has_evaluation
from loopkit.training.record import record_run
from loopkit.training.session import Session, TrainingResult
from loopkit.training.trainer import Trainer
from loopkit.training.warnings import warnings_before_training

__all__ = ["TrainingResult", "train"]


def train(
    recipe: Recipe,
    *,
    folder: RunFolder,
    resume: bool = False,
    accept_changed_plugins: bool = False,
    console: Console | None = None,
    verbose: bool = False,
    cache: Path | None = None,
    command: Sequence[str] | None = None,
) -> TrainingResult:
    """Train a recipe. The run folder is created only after every check has passed.

    Args:
        recipe: The resolved recipe.
        folder: The run folder; it must not exist, unless the run is resumed.
        resume: Continue from the newest complete checkpoint.
        accept_changed_plugins: Resume although a plugin file has changed since the run was made.
        console: Where progress is shown; None: standard error.
        verbose: Show DeepSpeed's own messages.
        cache: Folder of encoded data; None: the user's.
        command: Command line for the record; None: that of this process.

    Raises:
        RunExists: If the folder exists and the run is not resumed.
        RunBusy: If another process is training this run.
        CheckpointProblem: If there is no complete checkpoint to resume from.
        OtherRecipe: If the recipe or one of its plugin files differs from that of the run.
        OtherData: If the data differs from that of the run.
        UserError: If data, sizes, patterns or devices do not fit the recipe, or a package is missing.
        Interrupted: If a signal ended training; a checkpoint was written.
        Unhealthy: If ``train.health`` stopped the run.
        WriteFailed: If the run folder could not be written.
        OutOfMemory: If a step or an evaluation ran out of memory.
    """
    process = join(recipe.train.device)
    display = Display(console or Console(stderr=True), quiet=not process.first)
    require_packages(recipe, exclude=("tracker",))  # Trackers checks its own
    with ExitStack() as stack:
        # a resumed run is locked before its checkpoints are read, a new one as soon as its folder exists
        lock = partial(stack.enter_context, held(folder) if process.first else nullcontext())
        resume_point = start = None
        if resume:
            if folder.path.is_dir():
                lock()
            resume_point = _find_resume_point(recipe, folder, process, accept_changed_plugins, display)
        else:
            folder.refuse_existing()
            start = find_start(recipe.train)
            preflight(recipe)
        trackers = Trackers(recipe.trackers if process.first else {}, display.say, strict=not resume)
        prepared = _prepare_data(recipe, folder, resume_point, start, display, cache)
        build = partial(
            build_training, recipe, folder=folder, process=process, prepared=prepared, say=display.say, verbose=verbose
        )
        training = build(resume_point=resume_point)
        for message in training.describe():
            display.say(message)
        for message in ineffective(recipe, training.num_examples):
            display.say(f"warning: {message}")
        for message in warnings_before_training(recipe, process.device):
            display.say(message)
        if process.first:
            record_run(training, command)
        process.barrier()
        if not resume:
            lock()
        hang_report = folder.path / f"hung-rank-{process.rank:05d}.txt"
        watchdog = Watchdog(recipe.train.health.hang, hang_report, process.rank)
        with Session(training, display, trackers) as session, watchdog:
            while True:
                trainer = Trainer(training, display, trackers, watchdog)
                try:
                    rewind = trainer.run()
                finally:
                    session.update(trainer)
                if rewind is None:
                    return session.result()
                training.engine.close()
                del training, trainer  # the next model needs their memory
                gc.collect()
                if process.device.type == "cuda":
                    torch.cuda.empty_cache()
                training = build(resume_point=rewind_run(folder, process, rewind, display.say))


def _find_resume_point(
    recipe: Recipe, folder: RunFolder, process: Process, accept_changed_plugins: bool, display: Display
) -> ResumePoint:
    """Find the newest complete checkpoint, and check that it belongs to this recipe."""
    point = newest_resume_point(folder, process, display.say)
    saved = checkpoint.read_state(point.checkpoint)
    # the run's own tokenizer encodes, so options of fitting that joined the format since then have no effect
    options = {("data", "tokenizer", key) for key in recipe.values["data"]["tokenizer"]}
    unrecorded = {path for path in options if path[-1] not in saved["recipe"]["data"]["tokenizer"]}
    by_content = {*located(recipe.data), *unrecorded}
    for change in check_same(recipe.identity.completed(saved["recipe"]), recipe.values, by_content=by_content):
        display.say(f"resumed with another way of computing; numbers may differ by rounding:{change}")
    for change in check_plugins(saved.get("components", {}), recipe.specs.values(), accept=accept_changed_plugins):
        display.say(f"resumed with a changed plugin: {change}")
    display.say(f"resuming {folder.path} after step {point.state.step}")
    return point


def _prepare_data(
    recipe: Recipe,
    folder: RunFolder,
    resume_point: ResumePoint | None,
    start: StartPoint | None,
    display: Display,
    cache: Path | None,
) -> Prepared:
    """Encode the splits; those of a resumed run must have the recorded content."""
    splits = ["train", recipe.evaluate.split] if has_evaluation(recipe) else ["train"]
    tokenizer = None
    if resume_point is not None:
        tokenizer = run_tokenizer(recipe.data.tokenizer, resume_point.checkpoint.path / TOKENIZER)
    elif start is not None:
        tokenizer = start_tokenizer(start, recipe.data.tokenizer, display.say)
    prepared = prepare(recipe.data, cache=cache, splits=splits, tokenizer=tokenizer, progress=display.preparing)
    if resume_point is not None:
        check_same_data(read_provenance(folder.provenance).get("data", {}), prepared)
    return prepared
