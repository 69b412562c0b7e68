"""The training loop: optimizer steps, and what happens between them."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from loopkit.components.lr import LearningRate
from loopkit.cost.flops import StepFlops
from loopkit.data import StepData, Steps
from loopkit.data.batch_sizes import BatchSizes
from loopkit.errors import UserError
from loopkit.recipe import Recipe
from loopkit.runs.folder import RunFolder
from loopkit.runs.metrics import MetricsLog
from loopkit.training.checkpointing import rng
from loopkit.training.checkpointing.checkpoint import TrainState
from loopkit.training.checkpointing.checkpoint_policy import CheckpointPolicy
from loopkit.training.display.progress import Display
from loopkit.training.display.throughput import Throughput
from loopkit.training.display.tracking import Trackers
from loopkit.training.distributed.process_group import Process
from loopkit.training.distributed.watchdog import Watchdog
from loopkit.training.errors import EvaluationStopped, Interrupted, NotFinite, Signals, Unhealthy
from loopkit.training.step.engine import Engine
from loopkit.training.step.health import Event, HealthMonitor
from loopkit.training.step.loop_sampling import LoopDraw, LoopSampler
from loopkit.training.step.metrics import Counts, StepMetrics, StepValues, line
from loopkit.training.step.out_of_memory import explained, smaller_step


@dataclass(frozen=True)
class StepPlan:
    """What every optimizer step is made of, as functions of its number.

    Args:
        num_steps: Optimizer steps of the whole run.
        sizes: Batch, micro-batch, accumulation and ranks.
        steps: Its data.
        drawer: Its loops.
        rate: Its learning rate.
        flops: Its floating-point operations; None where they cannot be counted.
    """

    num_steps: int
    sizes: BatchSizes
    steps: Steps
    drawer: LoopSampler
    rate: LearningRate
    flops: StepFlops | None


@dataclass(frozen=True)
class Callbacks:
    """Who looks at a run: the user, trackers, and evaluation.

    Args:
        display: What the user sees.
        trackers: Where metrics also go.
        speed: How fast it goes.
        evaluate: Measures the model after so many steps and writes what it found.
        evaluated: Whether that has been done for so many steps.
        watchdog: Ends a process that makes no progress.
    """

    display: Display
    trackers: Trackers
    speed: Throughput
    evaluate: Callable[[int], None]
    evaluated: Callable[[int], bool]
    watchdog: Watchdog


class Rewind(Exception):
    """The run is to go back to its last whole checkpoint, and on with other data.

    Args:
        event: Why.
        sequences: Place in the stream of epochs after the data at fault.
        rewinds: Rewinds of the run, this one included.
    """

    def __init__(self, event: Event, sequences: int, rewinds: int) -> None:
        super().__init__(event.what)
        self.event, self.sequences, self.rewinds = event, sequences, rewinds


@dataclass
class Trainer:
    """Train from a place to the last step.

    Args:
        recipe: The resolved recipe.
        folder: The run; it exists.
        process: Which rank this is.
        engine: Model, objective and optimizer, in the state of ``place``.
        course: What the steps are made of.
        watchers: Who looks on.
        keeper: Writes its checkpoints.
        place: Where the run stands.
    """

    recipe: Recipe
    folder: RunFolder
    process: Process
    engine: Engine
    course: StepPlan
    watchers: Callbacks
    keeper: CheckpointPolicy
    place: TrainState

    def __post_init__(self) -> None:
        self._buffers = persistent_buffers(self.engine.module)
        self._health = HealthMonitor(self.recipe.train.health)

    def run(self) -> None:
        """Train.

        Raises:
            Interrupted: If a signal asked for it; a checkpoint has been written.
            Unhealthy: If ``train.health`` says so; the last good checkpoint stays.
            Rewind: If ``train.health`` says so.
            WriteFailed: If there is no room for a checkpoint; older ones stay.
            OutOfMemory: If a step or an evaluation needs more memory than there is.
        """
        with Signals() as signals, MetricsLog(self.folder.metrics, write=self.process.first) as log:
            if self.keeper.saved is None:  # from here on there is something to go back to
                self.keeper.save(self.place)
            if self.place.step > 0 and not self.watchers.evaluated(self.place.step):
                self._evaluate_if_due(signals)
            self.watchers.speed.start()
            while self.place.step < self.course.num_steps:
                with self._memory(f"step {self.place.step + 1}", smaller_step(self.recipe, self.course.sizes)):
                    finished = self.step(signals, log)
                if not finished:
                    self._leave(signals)
                with self.watchers.speed.paused():
                    self._between_steps(signals)

    def step(self, signals: Signals, log: MetricsLog) -> bool:
        """One optimizer step; False if a signal came before its last micro-step, and all of it was taken back."""
        before = rng.capture(self.process.device), [buffer.clone() for buffer in self._buffers]
        number, sizes = self.place.step, self.course.sizes
        # the cursor and not the number of the step says what is read: a rewind has moved it on
        data = self.course.steps.step(self.place.sequences // sizes.batch)
        draw = self.course.drawer.draw(number, sizes)
        metrics = StepMetrics(shift=draw.per == "sequence")
        if data.scored == 0:
            raise UserError(f"step {number + 1}: none of its {sizes.batch} sequences has a token to learn")
        for micro_step, batch in enumerate(data.batches()):
            loops = draw.loops(sizes, self.process.rank, micro_step)
            counts = Counts.of(batch, loops)
            parts = sizes.accumulation * sizes.world
            share, token_share = counts.scored * parts / data.scored, counts.tokens * parts / data.tokens
            batch = batch.to(self.process.device, non_blocking=True)
            metrics.add(self.engine.micro_step(batch, loops, number, share, token_share), counts)
            self.watchers.watchdog.beat()
            if micro_step + 1 < sizes.accumulation:
                self.engine.next_micro_step()
                if self._signal_received(signals):
                    self._rollback(*before)
                    return False
        self._finish_step(data, draw, metrics, log, before[1])
        return True

    def _finish_step(
        self, data: StepData, draw: LoopDraw, metrics: StepMetrics, log: MetricsLog, buffers: list[Tensor]
    ) -> None:
        """Update the weights, once the numbers have been looked at; write a line."""
        step, history = self.place.step + 1, self.place.history
        lr = self.course.rate.at(self.place.step, self.course.num_steps)
        logged = step % self.recipe.train.log_every == 0 or step == self.course.num_steps
        looked_at = logged or self._health.every_step
        values = metrics.read(self.process, self.engine.grad_norm()) if looked_at else None
        event = None if values is None else self._health.judge(step, values, history, data.sha)
        if event is not None and event.action != "warn":
            self._react(event, log)
            self.engine.skip()
            return self._skip_step(draw, metrics, buffers)
        grad_norm = self.engine.update(lr)
        if grad_norm is not None and not math.isfinite(grad_norm):
            self._react(self._health.lost_gradient(step, grad_norm, history, data.sha), log)
            return self._skip_step(draw, metrics, buffers)
        if event is not None:
            self._react(event, log)
        tokens, flops = self._advance(draw, metrics, taken=True)
        self.place = replace(self.place, history=self._health.taken(history, values))
        self.watchers.speed.add(tokens, flops)
        if values is not None and logged:
            self._log(values, data, draw, lr, grad_norm, log)
        return None

    def _react(self, event: Event, log: MetricsLog) -> None:
        """Write down what is wrong, and end this stretch of training if it says so."""
        if event.action == "rewind":  # written once the lines after the checkpoint are gone
            after = self.place.sequences + self.course.sizes.batch
            raise Rewind(event, after, self.place.history.rewinds + 1)
        log.write(event.line())
        if event.action == "stop":
            kind = NotFinite if event.kind == "not_finite" else Unhealthy
            raise kind(event.step, event.what, self._last)
        done = {"warn": "warning", "skip_step": "skipped"}[event.action]
        self.watchers.display.say(f"{done}: step {event.step}: {event.what}")

    def _skip_step(self, draw: LoopDraw, metrics: StepMetrics, buffers: list[Tensor]) -> None:
        """Count a step whose update was dropped, and leave no trace of it in running buffers."""
        self._restore(buffers)
        self._advance(draw, metrics, taken=False)
        history = self.place.history
        self.place = replace(self.place, history=replace(history, skips=history.skips + 1))

    def _advance(self, draw: LoopDraw, metrics: StepMetrics, *, taken: bool) -> tuple[int, float | None]:
        """Move on by one step; its tokens count where it was taken, its work in any case."""
        tokens = int(self.process.sum([float(metrics.tokens)])[0])
        flops = None if self.course.flops is None else self.course.flops.step(draw.pairs, tokens)
        spent = self.place.flops
        self.place = replace(
            self.place,
            step=self.place.step + 1,
            sequences=self.place.sequences + self.course.sizes.batch,
            tokens=self.place.tokens + (tokens if taken else 0),
            flops=None if flops is None or spent is None else spent + flops,
        )
        return tokens, flops

    def _log(
        self, values: StepValues, data: StepData, draw: LoopDraw, lr: float, grad_norm: float | None, log: MetricsLog
    ) -> None:
        sizes = self.course.sizes
        record = line(
            values,
            step=self.place.step,
            total=draw.total(sizes),
            loops_mean=draw.mean,
            backprop=draw.most_backprop(sizes),
            lr=lr,
            grad_norm=grad_norm,
            tokens=self.place.tokens,
            flops=self.place.flops,
            speed=self.watchers.speed.read(),
            batch_sha=data.sha,
        )
        log.write(record)
        self.watchers.display.step(record)
        self.watchers.trackers.log(self.place.step, record)

    def _between_steps(self, signals: Signals) -> None:
        """Save, leave if asked to, evaluate; in this order, so that no evaluation can cost a checkpoint."""
        step = self.place.step
        self.watchers.watchdog.beat()
        if self.keeper.due(step, self.course.num_steps):
            self.keeper.save(self.place)
        if step < self.course.num_steps and self._signal_received(signals):
            self._leave(signals)
        self._evaluate_if_due(signals)

    def _evaluate_if_due(self, signals: Signals) -> None:
        step, every = self.place.step, self.recipe.evaluate.every
        if step != self.course.num_steps and (every is None or step % every != 0):
            return
        before = rng.capture(self.process.device)
        stopped = False
        try:
            with (
                self._memory(f"the evaluation of step {step}", "try a smaller evaluate.batch"),
                self.watchers.watchdog.paused(),
                # ranks that share an evaluation must leave it together
                signals.stopping_at_once() if self.process.world == 1 else nullcontext(),
            ):
                self.watchers.evaluate(step)
        except EvaluationStopped:
            stopped = True
        finally:
            self.engine.module.train()
            rng.restore(before, self.process.device)
        if self.process.any(stopped):
            self._leave(signals)
        if (found := self.keeper.evaluated(step)) is not None:
            self.watchers.trackers.log(step, {"eval": found})

    def _leave(self, signals: Signals) -> None:
        """Save where the run stands, and end it."""
        self.keeper.save(self.place)
        assert self._last is not None
        # without a signal of its own a rank leaves because another one got it
        signum = signals.CAUGHT[-1] if signals.wanted is None else signals.wanted
        raise Interrupted(signum, self.place.step, self._last)

    @property
    def _last(self) -> Path | None:
        return self.keeper.saved.path if self.keeper.saved else None

    def _memory(self, where: str, remedy: str) -> AbstractContextManager[None]:
        return explained(where, remedy, self._last)

    def _signal_received(self, signals: Signals) -> bool:
        """Whether a signal came on any rank, so that all leave at the same place."""
        return self.process.any(signals.wanted is not None)

    def _rollback(self, generators: dict[str, Tensor], buffers: list[Tensor]) -> None:
        """Undo what the micro-steps of an unfinished step changed besides gradients."""
        rng.restore(generators, self.process.device)
        self._restore(buffers)

    def _restore(self, buffers: list[Tensor]) -> None:
        with torch.no_grad():
            for buffer, old in zip(self._buffers, buffers, strict=True):
                buffer.copy_(old)


def persistent_buffers(module: torch.nn.Module) -> list[Tensor]:
    """Buffers that are part of the state and so may change in training: running scales and the like."""
    saved = module.state_dict(keep_vars=True)
    return [buffer for name, buffer in module.named_buffers() if name in saved]
