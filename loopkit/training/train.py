"""From a resolved recipe to a trained run: find or make everything that training needs, then train."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from loopkit.cost.ceiling import Ceiling
from loopkit.data import check_same_data, located, prepare, run_tokenizer
from loopkit.evaluation.audit.preflight import preflight
from loopkit.recipe import Recipe
from loopkit.recipe.validation.packages import require_packages
from loopkit.recipe.validation.warnings import ineffective
from loopkit.runs.checkpoint import TOKENIZER
from loopkit.runs.folder import RunFolder
from loopkit.runs.lock import held
from loopkit.runs.provenance import read_provenance
from loopkit.training.checkpointing import checkpoint
from loopkit.training.checkpointing.resume import check_plugins, check_same
from loopkit.training.checkpointing.start_from import weights_in
from loopkit.training.display.progress import Display
from loopkit.training.display.tracking import Trackers
from loopkit.training.distributed.process_group import Process, join
from loopkit.training.evaluation_hook import asks
from loopkit.training.record import record
from loopkit.training.session import Session, TrainingResult, last_start
from loopkit.training.setup import ResumePoint
from loopkit.training.warnings import cautions

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
    """Train a recipe.

    Nothing is written before everything that can be wrong has been found right.

    Args:
        recipe: The resolved recipe.
        folder: Where the run goes; it must not exist, unless the run is resumed.
        resume: Go on from the newest whole checkpoint.
        accept_changed_plugins: Resume although a plugin file is no longer the one that the run was made with.
        console: Where progress is shown; None: standard error.
        verbose: Let DeepSpeed speak too.
        cache: Folder of encoded data; None: the user's.
        command: Command line for the record; None: this process's.

    Raises:
        RunExists: If the folder exists and the run is not resumed.
        RunBusy: If another process is training this run.
        CheckpointProblem: If there is no whole checkpoint to resume from.
        OtherRecipe: If the recipe, or a plugin file of it, is not the one that the run was made with.
        OtherData: If the data is not what the run was made with.
        ValueError: If data, sizes, patterns or devices do not fit the recipe, or a package is missing.
        Interrupted: If a signal ended training; a checkpoint has been written.
        Unhealthy: If ``train.health`` stopped the run.
        WriteFailed: If the run folder could not be written to.
        OutOfMemory: If a step or an evaluation needed more memory than there is.
    """
    process = join(recipe.train.device)
    display = Display(console or Console(stderr=True), quiet=not process.first)
    require_packages(recipe, besides=("tracker",))  # Trackers look after theirs
    with ExitStack() as holding:
        if resume and process.first and folder.path.is_dir():
            holding.enter_context(held(folder))
        start = _start(recipe, folder, process, resume, accept_changed_plugins, display)
        run, found = _prepare(recipe, folder, process, display, start, resume, verbose, cache, command)
        if not resume and process.first:
            holding.enter_context(held(folder))
        return run.train(found)


def _prepare(
    recipe: Recipe,
    folder: RunFolder,
    process: Process,
    display: Display,
    start: ResumePoint | None,
    resume: bool,
    verbose: bool,
    cache: Path | None,
    command: Sequence[str] | None,
) -> tuple[Session, Ceiling]:
    """Everything that comes before the first step; the run folder is there afterwards."""
    if start is None and recipe.train.start_from is not None:
        weights_in(recipe.train.start_from)  # before any data is fetched
    if start is None:
        preflight(recipe)
    trackers = Trackers(recipe.trackers if process.first else {}, display.say, strict=not resume)
    tokenizer = None if start is None else run_tokenizer(recipe.data.tokenizer, start.checkpoint.path / TOKENIZER)
    prepared = prepare(
        recipe.data, cache=cache, splits=_splits(recipe), tokenizer=tokenizer, progress=display.preparing
    )
    if start is not None:
        check_same_data(read_provenance(folder.provenance).get("data", {}), prepared)
    run = Session(recipe, folder, process, prepared, display, trackers, verbose)
    setup = run.begin(start, display.say)
    found = setup.ceiling()
    for text in ineffective(recipe, len(setup.examples)):
        display.say(f"warning: {text}")
    for text in cautions(recipe, process.device, found):
        display.say(text)
    if process.first:
        record(setup, found, command)
    process.barrier()
    return run, found


def _start(
    recipe: Recipe, folder: RunFolder, process: Process, resume: bool, accept_changed_plugins: bool, display: Display
) -> ResumePoint | None:
    if not resume:
        folder.refuse_existing()
        return None
    start = last_start(folder, process, display.say)
    state = checkpoint.read_state(start.checkpoint)
    saved = state["recipe"]
    # the run's own tokenizer encodes, so options of fitting that joined the format since then have no effect
    options = {("data", "tokenizer", key) for key in recipe.values["data"]["tokenizer"]}
    unrecorded = {path for path in options if path[-1] not in saved["data"]["tokenizer"]}
    by_content = {*located(recipe.data), *unrecorded}
    for change in check_same(recipe.identity.completed(saved), recipe.values, by_content=by_content):
        display.say(f"resumed with another way of computing; numbers may differ by rounding:{change}")
    for change in check_plugins(state.get("components", {}), recipe.specs.values(), accept=accept_changed_plugins):
        display.say(f"resumed with a changed plugin: {change}")
    display.say(f"resuming {folder.path} after step {start.place.step}")
    return start


def _splits(recipe: Recipe) -> list[str]:
    return ["train", recipe.evaluate.split] if asks(recipe) else ["train"]
