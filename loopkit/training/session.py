"""The record of one training process in the run folder: its end, its last step, and its trackers."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType

from loopkit.components.tracker import RunInfo
from loopkit.runs.checkpoint import Checkpoint
from loopkit.runs.folder import RunFolder
from loopkit.runs.provenance import end_session, read_provenance
from loopkit.training.build import Training
from loopkit.training.display.progress import Display
from loopkit.training.display.tracking import Trackers
from loopkit.training.errors import Interrupted, WriteFailed, is_disk_full
from loopkit.training.trainer import Trainer


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
    """Open the trackers at the start of the block; at its end close them and record status and last step.

    An error of a full disk inside the block becomes ``WriteFailed``.

    Args:
        training: The run; its folder exists.
        display: Shows warnings.
        trackers: Receive the metrics.
    """

    def __init__(self, training: Training, display: Display, trackers: Trackers) -> None:
        self.folder, self.process = training.folder, training.process
        self.display, self.trackers = display, trackers
        self.values = training.recipe.values
        self.step, self.checkpoint = training.state.step, training.checkpoints.newest

    def update(self, trainer: Trainer) -> None:
        """Take over the progress of a trainer that ended."""
        self.step, self.checkpoint = trainer.state.step, trainer.checkpoints.newest

    def result(self) -> TrainingResult:
        """Return the finished run."""
        assert self.checkpoint is not None
        return TrainingResult(self.folder, self.step, self.checkpoint)

    def __enter__(self) -> Session:
        provenance = read_provenance(self.folder.provenance)
        self.trackers.open(RunInfo(self.folder.name, self.folder.path, self.values, provenance, self.step))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        status = "finished" if error is None else "interrupted" if isinstance(error, Interrupted) else "failed"
        if self.process.first:
            try:
                end_session(self.folder.provenance, status, self.step)
            except OSError as problem:  # must not hide the error that ended training
                self.display.say(f"warning: {self.folder.provenance} could not be written: {problem}")
        self.trackers.close(status)
        if isinstance(error, OSError) and is_disk_full(error):
            newest = self.checkpoint.path if self.checkpoint else None
            raise WriteFailed(self.step, f"{error.filename or 'the run folder'}", error, newest) from error
