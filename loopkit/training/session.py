"""One stretch of training: from a start to the end, with rewinds in between."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from loopkit.components.tracker import RunInfo
from loopkit.cost.ceiling import Ceiling
from loopkit.data import Prepared
from loopkit.recipe import Recipe
from loopkit.runs.checkpoint import Checkpoint, CheckpointProblem, newest_checkpoint
from loopkit.runs.folder import RunFolder
from loopkit.runs.metrics import REWOUND_TO, MetricsLog, cut_metrics
from loopkit.runs.provenance import end_session, read_provenance
from loopkit.training.checkpointing import checkpoint, rng
from loopkit.training.checkpointing.checkpoint_policy import CheckpointPolicy
from loopkit.training.display.progress import Display
from loopkit.training.display.throughput import Throughput
from loopkit.training.display.tracking import Trackers
from loopkit.training.distributed.process_group import Process
from loopkit.training.distributed.watchdog import Watchdog
from loopkit.training.errors import Interrupted, WriteFailed, disk_full
from loopkit.training.evaluation_hook import EvaluationHook
from loopkit.training.setup import ResumePoint, Setup
from loopkit.training.step.engine import Engine
from loopkit.training.trainer import Callbacks, Rewind, Trainer


@dataclass(frozen=True)
class TrainingResult:
    """A finished run.

    Args:
        folder: Its folder.
        step: Optimizer steps done.
        checkpoint: The last checkpoint.
    """

    folder: RunFolder
    step: int
    checkpoint: Checkpoint


class Session:
    """Train from a start to the last step.

    Args:
        recipe: The resolved recipe.
        folder: The run.
        process: Which rank this is.
        prepared: Tokenizer and encoded splits.
        display: What the user sees.
        trackers: Where metrics also go.
        verbose: Let DeepSpeed speak too.
    """

    def __init__(
        self,
        recipe: Recipe,
        folder: RunFolder,
        process: Process,
        prepared: Prepared,
        display: Display,
        trackers: Trackers,
        verbose: bool = False,
    ) -> None:
        self.recipe, self.folder, self.process, self.prepared = recipe, folder, process, prepared
        self.display, self.trackers, self.verbose = display, trackers, verbose
        self.saved: Checkpoint | None = None

    def begin(self, start: ResumePoint | None, told: Callable[[str], None]) -> Setup:
        """Make everything that training needs, in the state of a start: model, engine, generators.

        Args:
            start: Where a resumed or rewound run begins; None for a fresh one.
            told: Takes what is about to happen, in sentences, before the engine is made.
        """
        self.setup = Setup(self.recipe, self.folder, self.process, self.prepared, start)
        self.step = self.setup.place.step
        for text in self.setup.describe():
            told(text)
        rng.seed_all(self.recipe.seed, self.process.rank)
        self.engine: Engine | None = self.setup.engine(self.verbose)
        if start is not None and not checkpoint.load_rest(start.checkpoint, self.engine, self.process):
            self.display.say(f"rank {self.process.rank} was not part of the run: its random generators start anew")
        return self.setup

    def train(self, found: Ceiling) -> TrainingResult:
        """Train to the end; a rewind goes on from the last whole checkpoint just as a resumed run would.

        Args:
            found: The most that the device can do.

        Raises:
            Ended: If training ends before its last step.
        """
        status = "failed"
        hung = self.folder.path / f"hung-rank-{self.process.rank:05d}.txt"
        watchdog = Watchdog(self.recipe.train.health.hang, hung, self.process.rank)
        try:
            provenance = read_provenance(self.folder.provenance)
            self.trackers.open(
                RunInfo(self.folder.name, self.folder.path, self.recipe.values, provenance, self.setup.place.step)
            )
            with watchdog:
                while (back := self._train_until_rewind(found, watchdog)) is not None:
                    self._release()
                    self.begin(self._rewound(back), lambda _: None)
            status = "finished"
        except Interrupted:
            status = "interrupted"
            raise
        except OSError as error:
            if not disk_full(error):
                raise
            last = self.saved.path if self.saved else None
            raise WriteFailed(self.step, f"{error.filename or 'the run folder'}", error, last) from error
        finally:
            self._end(status)
        assert self.saved is not None
        return TrainingResult(self.folder, self.step, self.saved)

    def _train_until_rewind(self, found: Ceiling, watchdog: Watchdog) -> Rewind | None:
        """Train until the end, or until a rewind is called for."""
        recipe, process, display = self.recipe, self.process, self.display
        setup, engine = self.setup, self.engine
        assert engine is not None
        measurement = EvaluationHook(recipe, self.folder, self.prepared, engine, process)
        saved = None if setup.start is None else setup.start.checkpoint
        keeper = CheckpointPolicy(recipe, self.folder, process, self.prepared.tokenizer, engine, display.say, saved)
        trainer = Trainer(
            recipe=recipe,
            folder=self.folder,
            process=process,
            engine=engine,
            course=setup.course(),
            watchers=Callbacks(
                display=display,
                trackers=self.trackers,
                speed=Throughput(found.flops_per_s * process.world, process.device),
                evaluate=measurement,
                evaluated=measurement.done,
                watchdog=watchdog,
            ),
            keeper=keeper,
            place=setup.place,
        )
        try:
            with display.running(setup.num_steps, setup.place.step):
                trainer.run()
        except Rewind as back:
            return back.with_traceback(None)
        finally:
            self.step, self.saved = trainer.place.step, keeper.saved
        return None

    def _release(self) -> None:
        """Give up model and engine, whose memory their successors need."""
        assert self.engine is not None
        self.engine.close()
        self.engine = None
        del self.setup
        gc.collect()
        if self.process.device.type == "cuda":
            torch.cuda.empty_cache()

    def _rewound(self, back: Rewind) -> ResumePoint:
        """The start after a rewind; the event is written down."""
        start = last_start(self.folder, self.process, self.display.say)
        place = start.place
        skipped = back.sequences - place.sequences
        if self.process.first:
            cut_metrics(self.folder.metrics, place.step, rewinding=True)
            with MetricsLog(self.folder.metrics) as log:
                log.write(back.event.line(**{REWOUND_TO: place.step, "skipped_sequences": skipped}))
        self.process.barrier()
        self.display.say(
            f"rewound: step {back.event.step}: {back.event.what}; going on from step {place.step} "
            f"without the {skipped} sequences since"
        )
        history = replace(place.history, rewinds=back.rewinds)
        return ResumePoint(start.checkpoint, replace(place, sequences=back.sequences, history=history))

    def _end(self, status: str) -> None:
        """Note how it ended; where even that cannot be written, the reason why training ended matters more."""
        if self.process.first:
            try:
                end_session(self.folder.provenance, status, self.step)
            except OSError as error:
                self.display.say(f"warning: {self.folder.provenance} could not be written: {error}")
        self.trackers.close(status)


def last_start(folder: RunFolder, process: Process, say: Callable[[str], None]) -> ResumePoint:
    """The newest whole checkpoint. The first rank chooses, so that all go on from the same one.

    Raises:
        CheckpointProblem: On every rank, if there is none.
    """
    step, problem = -1, None
    if process.first:
        try:
            newest, damaged = newest_checkpoint(folder.checkpoints)
            step = newest.step
            for text in damaged:
                say(f"warning: a newer checkpoint is damaged and not used: {text}")
        except CheckpointProblem as error:
            problem = error
    step = int(process.sum([float(step) if process.first else 0.0])[0])
    if step < 0:
        raise problem or CheckpointProblem("the first rank found no checkpoint to go on from")
    found = Checkpoint(folder.checkpoint(step), step)
    if not process.first:  # it may see another state of the file system
        found.check()
    return ResumePoint(found, checkpoint.place_of(checkpoint.read_state(found)))
