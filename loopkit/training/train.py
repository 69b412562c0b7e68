"""From a resolved recipe to a trained run: find or make everything that training needs, then train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from loopkit.components.tracker import RunInfo
from loopkit.data import prepare
from loopkit.recipe import Recipe
from loopkit.runs.checkpoint import Checkpoint, newest_checkpoint
from loopkit.runs.folder import RunFolder
from loopkit.runs.provenance import end_session, read_provenance
from loopkit.training import checkpoint, rng
from loopkit.training.cautions import cautions
from loopkit.training.ceiling import Ceiling
from loopkit.training.engine import Engine
from loopkit.training.measure import Measurement, asks
from loopkit.training.process import join
from loopkit.training.progress import Display
from loopkit.training.record import record
from loopkit.training.resume import check_same
from loopkit.training.setup import Setup, Start
from loopkit.training.speed import Speedometer
from loopkit.training.start_from import weights_in
from loopkit.training.stop import Interrupted
from loopkit.training.tracking import Trackers
from loopkit.training.trainer import Course, Trainer, Watchers


@dataclass(frozen=True)
class Trained:
    """A finished run.

    Args:
        folder: Its folder.
        step: Optimizer steps done.
        checkpoint: The last checkpoint.
    """

    folder: RunFolder
    step: int
    checkpoint: Checkpoint


def train(
    recipe: Recipe,
    *,
    folder: RunFolder,
    resume: bool = False,
    console: Console | None = None,
    verbose: bool = False,
    cache: Path | None = None,
    command: Sequence[str] | None = None,
) -> Trained:
    """Train a recipe.

    Nothing is written before everything that can be wrong has been found right.

    Args:
        recipe: The resolved recipe.
        folder: Where the run goes; it must not exist, unless the run is resumed.
        resume: Go on from the newest whole checkpoint.
        console: Where progress is shown; None: standard error.
        verbose: Let DeepSpeed speak too.
        cache: Folder of encoded data; None: the user's.
        command: Command line for the record; None: this process's.

    Raises:
        RunExists: If the folder exists and the run is not resumed.
        CheckpointProblem: If there is no whole checkpoint to resume from.
        OtherRecipe: If the recipe is not the one that the run was made with.
        ValueError: If data, sizes, patterns or devices do not fit the recipe.
        Interrupted: If a signal ended training; a checkpoint has been written.
        NotFinite: If a number stopped being one.
    """
    process = join(recipe.train.device)
    display = Display(console or Console(stderr=True), quiet=not process.first)
    start = _start(recipe, folder, resume, display)
    if start is None and recipe.train.start_from is not None:
        weights_in(recipe.train.start_from)  # before any data is fetched
    prepared = prepare(recipe.data, cache=cache, splits=_splits(recipe), progress=display.preparing)
    setup = Setup(recipe, folder, process, prepared, start)
    for text in setup.describe():
        display.say(text)
    rng.seed_all(recipe.seed, process.rank)
    engine = setup.engine(verbose)
    if start is not None and not checkpoint.load_rest(start.checkpoint, engine, process):
        display.say(f"rank {process.rank} was not part of the run: its dropout begins anew")
    course, found = setup.course(), setup.ceiling()
    for text in cautions(recipe, process.device, found):
        display.say(text)
    if process.first:
        record(setup, found, command)
    process.barrier()
    return _run(setup, engine, course, found, display)


def _start(recipe: Recipe, folder: RunFolder, resume: bool, display: Display) -> Start | None:
    if not resume:
        folder.refuse_existing()
        return None
    found, damaged = newest_checkpoint(folder.checkpoints)
    for problem in damaged:
        display.say(f"warning: a newer checkpoint is damaged and not used: {problem}")
    state = checkpoint.read_state(found)
    for change in check_same(state["recipe"], recipe.values):
        display.say(f"resumed with another way of computing; numbers may differ by rounding:{change}")
    place = checkpoint.place_of(state)
    display.say(f"resuming {folder.path} after step {place.step}")
    return Start(found, place)


def _splits(recipe: Recipe) -> list[str]:
    return ["train", recipe.evaluate.split] if asks(recipe) else ["train"]


def _run(setup: Setup, engine: Engine, course: Course, found: Ceiling, display: Display) -> Trained:
    recipe, folder, process = setup.recipe, setup.folder, setup.process
    measurement = Measurement(recipe, folder, setup.prepared, engine, process)
    trackers = Trackers(recipe.trackers if process.first else {}, display.say)
    trainer = Trainer(
        recipe=recipe,
        folder=folder,
        process=process,
        tokenizer=setup.prepared.tokenizer,
        engine=engine,
        course=course,
        watchers=Watchers(
            display=display,
            trackers=trackers,
            speed=Speedometer(found.flops_per_s * process.world, process.device),
            evaluate=measurement,
            evaluated=measurement.done,
        ),
        place=setup.place,
        saved=None if setup.start is None else setup.start.checkpoint,
    )
    status = "failed"
    try:
        provenance = read_provenance(folder.provenance)
        trackers.open(RunInfo(folder.name, folder.path, recipe.values, provenance, trainer.place.step))
        with display.running(setup.num_steps, trainer.place.step):
            trainer.run()
        status = "finished"
    except Interrupted:
        status = "interrupted"
        raise
    finally:
        if process.first:
            end_session(folder.provenance, status, trainer.place.step)
        trackers.close(status)
    assert trainer.saved is not None
    return Trained(folder, trainer.place.step, trainer.saved)
