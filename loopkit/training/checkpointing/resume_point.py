"""The checkpoint and state from which a run is resumed or rewound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from loopkit.plural import plural
from loopkit.runs.checkpoint import Checkpoint, CheckpointProblem, newest_checkpoint
from loopkit.runs.folder import RunFolder
from loopkit.runs.metrics import REWOUND_TO, MetricsLog, cut_metrics
from loopkit.training.checkpointing.checkpoint import TrainState, read_state, train_state_of
from loopkit.training.distributed.process_group import Process
from loopkit.training.step.health import Rewind


@dataclass(frozen=True)
class ResumePoint:
    """The start of a resumed run.

    Args:
        checkpoint: A checkpoint that was verified to be complete.
        state: The progress of the run, from the checkpoint.
    """

    checkpoint: Checkpoint
    state: TrainState


def newest_resume_point(folder: RunFolder, process: Process, say: Callable[[str], None]) -> ResumePoint:
    """Find the newest complete checkpoint. The first rank chooses it, so that all ranks resume from the same one.

    Raises:
        CheckpointProblem: On every rank, if there is none.
    """
    step, problem = -1, None
    if process.first:
        try:
            newest, damaged = newest_checkpoint(folder.checkpoints)
            step = newest.step
            for message in damaged:
                say(f"warning: a newer checkpoint is damaged and not used: {message}")
        except CheckpointProblem as error:
            problem = error
    step = int(process.sum([float(step) if process.first else 0.0])[0])
    if step < 0:
        raise problem or CheckpointProblem("the first rank found no checkpoint from which the run could be resumed")
    checkpoint = Checkpoint(folder.checkpoint(step), step)
    if not process.first:  # another machine may see another state of the file system
        checkpoint.check()
    return ResumePoint(checkpoint, train_state_of(read_state(checkpoint)))


def rewind_run(folder: RunFolder, process: Process, rewind: Rewind, say: Callable[[str], None]) -> ResumePoint:
    """Cut the metrics back to the newest complete checkpoint, record the rewind, and return the point to resume from.

    Args:
        folder: The run.
        process: This rank.
        rewind: The reason, and the first sequence to read next.
        say: Prints a message.
    """
    point = newest_resume_point(folder, process, say)
    state, event = point.state, rewind.event
    skipped = rewind.sequences - state.sequences
    if process.first:
        cut_metrics(folder.metrics, state.step, rewinding=True)
        with MetricsLog(folder.metrics) as log:
            log.write(event.record(**{REWOUND_TO: state.step, "skipped_sequences": skipped}))
    process.barrier()
    say(
        f"rewound: step {event.step}: {event.what}; continuing from step {state.step} "
        f"without {plural(skipped, 'sequence')}"
    )
    history = replace(state.history, rewinds=rewind.rewinds)
    return ResumePoint(point.checkpoint, replace(state, sequences=rewind.sequences, history=history))
