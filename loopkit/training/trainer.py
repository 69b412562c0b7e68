"""The training loop: optimizer steps, and checkpoints and evaluations between them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from loopkit.data import StepData
from loopkit.errors import UserError
from loopkit.plural import plural
from loopkit.runs.metrics import MetricsLog
from loopkit.training.build import Training
from loopkit.training.checkpointing import rng
from loopkit.training.display.progress import Display
from loopkit.training.display.throughput import Throughput
from loopkit.training.display.tracking import Trackers
from loopkit.training.distributed.watchdog import Watchdog
from loopkit.training.errors import Interrupted, NotFinite, Unhealthy
from loopkit.training.signals import EvaluationStopped, Signals
from loopkit.training.step.health import Event, HealthMonitor, Rewind
from loopkit.training.step.loop_sampling import LoopDraw
from loopkit.training.step.metrics import Counts, StepMetrics, StepValues, metrics_record
from loopkit.training.step.out_of_memory import explain_out_of_memory, suggest_smaller_step


class Trainer:
    """Train from the state of a ``Training`` to the last step.

    Args:
        training: The run.
        display: Shows progress to the user.
        trackers: Receive the metrics.
        watchdog: Ends a process that makes no progress.
    """

    def __init__(self, training: Training, display: Display, trackers: Trackers, watchdog: Watchdog) -> None:
        self.recipe, self.process = training.recipe, training.process
        self.folder, self.engine, self.plan = training.folder, training.engine, training.plan
        self.average = training.average
        self.checkpoints, self.evaluation = training.checkpoints, training.evaluation
        self.display, self.trackers, self.watchdog = display, trackers, watchdog
        self.state = training.state
        self.throughput = Throughput(training.ceiling.flops_per_s * self.process.world, self.process.device)
        self.health = HealthMonitor(self.recipe.train.health)

    def run(self) -> Rewind | None:
        """Train to the last step.

        Returns:
            The rewind that ``train.health`` requests; None after the last step.

        Raises:
            Interrupted: If a signal arrived; a checkpoint was written.
            Unhealthy: If ``train.health`` stops the run; the last good checkpoint stays.
            WriteFailed: If a checkpoint could not be written; older ones stay.
            OutOfMemory: If a step or an evaluation ran out of memory.
        """
        try:
            with (
                self.display.running(self.plan.num_steps, self.state.step),
                Signals() as signals,
                MetricsLog(self.folder.metrics, write=self.process.first) as log,
            ):
                self._train(signals, log)
        except Rewind as rewind:
            return rewind.with_traceback(None)  # the traceback would keep model and engine alive
        return None

    def _train(self, signals: Signals, log: MetricsLog) -> None:
        if self.state.step == 0:
            with self._evaluating("the trial evaluation", signals):
                self.evaluation.rehearse()
        if self.checkpoints.newest is None:  # a rewind needs a checkpoint from the first step on
            self.checkpoints.save(self.state)
        if self.state.step > 0 and not self.evaluation.is_done(self.state.step):
            self._evaluate_if_due(signals)
        self.throughput.start()
        while self.state.step < self.plan.num_steps:
            with self._explain_memory(
                f"step {self.state.step + 1}", suggest_smaller_step(self.recipe, self.plan.sizes)
            ):
                finished = self.step(signals, log)
            if not finished:
                self._save_and_exit(signals)
            with self.throughput.paused():
                self._between_steps(signals)

    def step(self, signals: Signals, log: MetricsLog) -> bool:
        """Take one optimizer step.

        Returns:
            False if a signal arrived before its last micro-step; the step then has no effect.
        """
        generators = rng.capture(self.process.device)
        step, sizes = self.state.step, self.plan.sizes
        # a rewind moves the cursor past the data at fault, so the step's number does not determine the data
        data = self.plan.data.step(self.state.sequences // sizes.batch)
        draw = self.plan.sampler.draw(step, sizes)
        metrics = StepMetrics(shift=draw.per == "sequence")
        if data.scored == 0:
            sequences = plural(sizes.batch, "sequence")
            raise UserError(f"step {step + 1}: no token of its {sequences} is scored; raise data.length")
        for micro_step, batch in enumerate(data.batches()):
            loops = draw.loops(sizes, self.process.rank, micro_step)
            counts = Counts.of(batch, loops)
            num_parts = sizes.accumulation * sizes.world
            share, token_share = counts.scored * num_parts / data.scored, counts.tokens * num_parts / data.tokens
            batch = batch.to(self.process.device, non_blocking=True)
            metrics.add(self.engine.micro_step(batch, loops, step, share, token_share), counts)
            self.watchdog.beat()
            if micro_step + 1 < sizes.accumulation:
                self.engine.next_micro_step()
                if self._signal_received(signals):
                    rng.restore(generators, self.process.device)
                    return False
        self._finish_step(data, draw, metrics, log)
        return True

    def _finish_step(self, data: StepData, draw: LoopDraw, metrics: StepMetrics, log: MetricsLog) -> None:
        """Check the numbers of the step, update the weights, and log."""
        step, history = self.state.step + 1, self.state.history
        lr = self.plan.lr.at(self.state.step, self.plan.num_steps)
        is_logged = step % self.recipe.train.log_every == 0 or step == self.plan.num_steps
        values = None
        if is_logged or self.health.checks_every_step:
            values = metrics.read(self.process, self.engine.grad_norm())
        event = None if values is None else self.health.check(step, values, history, data.sha)
        if event is not None and event.action != "warn":
            self._handle_event(event, log)
            self.engine.skip()
            return self._skip_step(draw, metrics)
        grad_norm = self.engine.update(lr)
        if grad_norm is not None and not math.isfinite(grad_norm):
            self._handle_event(self.health.gradient_event(step, grad_norm, history, data.sha), log)
            return self._skip_step(draw, metrics)
        if event is not None:
            self._handle_event(event, log)
        tokens, flops = self._advance(draw, metrics, updated=True)
        if self.average is not None:
            self.average.update(self.state.step)
        self.state = replace(self.state, history=self.health.extend(history, values))
        self.throughput.add(tokens, flops)
        if values is not None and is_logged:
            self._log(values, data, draw, lr, grad_norm, log)
        return None

    def _handle_event(self, event: Event, log: MetricsLog) -> None:
        """Log the event, and raise if its action ends this part of the run."""
        if event.action == "rewind":  # logged after the lines that follow the checkpoint are removed
            next_sequence = self.state.sequences + self.plan.sizes.batch
            raise Rewind(event, next_sequence, self.state.history.rewinds + 1)
        log.write(event.record())
        if event.action == "stop":
            error = NotFinite if event.kind == "not_finite" else Unhealthy
            raise error(event.step, event.what, self._newest_checkpoint)
        label = {"warn": "warning", "skip_step": "skipped"}[event.action]
        self.display.say(f"{label}: step {event.step}: {event.what}")

    def _skip_step(self, draw: LoopDraw, metrics: StepMetrics) -> None:
        """Count a step whose update was dropped."""
        self._advance(draw, metrics, updated=False)
        history = self.state.history
        self.state = replace(self.state, history=replace(history, skips=history.skips + 1))

    def _advance(self, draw: LoopDraw, metrics: StepMetrics, *, updated: bool) -> tuple[int, float | None]:
        """Advance the state by one step; a step without an update adds FLOPs but no tokens."""
        tokens = int(self.process.sum([float(metrics.tokens)])[0])
        flops = None if self.plan.flops is None else self.plan.flops.step(draw.pairs, tokens)
        total_flops = self.state.flops
        self.state = replace(
            self.state,
            step=self.state.step + 1,
            sequences=self.state.sequences + self.plan.sizes.batch,
            tokens=self.state.tokens + (tokens if updated else 0),
            flops=None if flops is None or total_flops is None else total_flops + flops,
        )
        return tokens, flops

    def _log(
        self, values: StepValues, data: StepData, draw: LoopDraw, lr: float, grad_norm: float | None, log: MetricsLog
    ) -> None:
        sizes = self.plan.sizes
        record = metrics_record(
            values,
            step=self.state.step,
            total=draw.total(sizes),
            loops_mean=draw.mean,
            backprop=draw.max_backprop(sizes),
            lr=lr,
            grad_norm=grad_norm,
            tokens=self.state.tokens,
            flops=self.state.flops,
            throughput=self.throughput.read(),
            batch_sha=data.sha,
        )
        log.write(record)
        self.display.log(record)
        self.trackers.log(self.state.step, record)

    def _between_steps(self, signals: Signals) -> None:
        """Save, leave after a signal, evaluate; in this order, so that no evaluation can cost a checkpoint."""
        step = self.state.step
        self.watchdog.beat()
        if self.checkpoints.is_due(step, self.plan.num_steps):
            self.checkpoints.save(self.state)
        if step < self.plan.num_steps and self._signal_received(signals):
            self._save_and_exit(signals)
        self._evaluate_if_due(signals)

    def _evaluate_if_due(self, signals: Signals) -> None:
        step, every = self.state.step, self.recipe.evaluate.every
        if step != self.plan.num_steps and (every is None or step % every != 0):
            return
        with self._evaluating(f"the evaluation of step {step}", signals):
            self.evaluation(step)
        if (metrics := self.checkpoints.update_best(step)) is not None:
            self.trackers.log(step, {"eval": metrics})

    @contextmanager
    def _evaluating(self, what: str, signals: Signals) -> Iterator[None]:
        """Pause training for an evaluation, and leave if a signal stopped it."""
        generators = rng.capture(self.process.device)
        stopped = False
        try:
            with (
                self._explain_memory(what, "try a smaller evaluate.batch"),
                self.watchdog.paused(),
                # ranks that share an evaluation must leave it together
                signals.stopping_evaluation() if self.process.world == 1 else nullcontext(),
            ):
                yield
        except EvaluationStopped:
            stopped = True
        finally:
            self.engine.module.train()
            rng.restore(generators, self.process.device)
        if self.process.any(stopped):
            self._save_and_exit(signals)

    def _save_and_exit(self, signals: Signals) -> None:
        """Save a checkpoint and raise ``Interrupted``."""
        self.checkpoints.save(self.state)
        assert self._newest_checkpoint is not None
        # a rank that received no signal leaves because another rank did
        signum = signals.HANDLED[-1] if signals.received is None else signals.received
        raise Interrupted(signum, self.state.step, self._newest_checkpoint)

    @property
    def _newest_checkpoint(self) -> Path | None:
        return self.checkpoints.newest.path if self.checkpoints.newest else None

    def _explain_memory(self, where: str, remedy: str) -> AbstractContextManager[None]:
        return explain_out_of_memory(where, remedy, self._newest_checkpoint)

    def _signal_received(self, signals: Signals) -> bool:
        """Whether any rank received a signal, so that all ranks leave at the same step."""
        return self.process.any(signals.received is not None)
