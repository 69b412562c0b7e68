"""The training loop: optimizer steps, and what happens between them."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from loopkit.components.lr import LearningRate
from loopkit.components.tokenizer import Tokenizer
from loopkit.data import StepData, Steps
from loopkit.recipe import Recipe
from loopkit.runs.checkpoint import Checkpoint
from loopkit.runs.folder import RunFolder
from loopkit.runs.metrics import MetricsLog
from loopkit.training import checkpoint, rng
from loopkit.training.draws import Draw, Drawer
from loopkit.training.engine import Engine
from loopkit.training.flops import StepFlops
from loopkit.training.metrics import Counts, StepMetrics, line
from loopkit.training.process import Process
from loopkit.training.progress import Display
from loopkit.training.sizes import Sizes
from loopkit.training.speed import Speedometer
from loopkit.training.stop import EvaluationStopped, Interrupted, NotFinite, Signals
from loopkit.training.tracking import Trackers


@dataclass(frozen=True)
class Course:
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
    sizes: Sizes
    steps: Steps
    drawer: Drawer
    rate: LearningRate
    flops: StepFlops | None


@dataclass(frozen=True)
class Watchers:
    """Who looks at a run: the user, trackers, and evaluation.

    Args:
        display: What the user sees.
        trackers: Where metrics also go.
        speed: How fast it goes.
        evaluate: Measures the model after so many steps and writes what it found.
        evaluated: Whether that has been done for so many steps.
    """

    display: Display
    trackers: Trackers
    speed: Speedometer
    evaluate: Callable[[int], None]
    evaluated: Callable[[int], bool]


@dataclass
class Trainer:
    """Train from a place to the last step.

    Args:
        recipe: The resolved recipe.
        folder: The run; it exists.
        process: Which rank this is.
        tokenizer: Saved with checkpoints.
        engine: Model, objective and optimizer, in the state of ``place``.
        course: What the steps are made of.
        watchers: Who looks on.
        place: Where the run stands.
        saved: The checkpoint of that place, if there is one.
    """

    recipe: Recipe
    folder: RunFolder
    process: Process
    tokenizer: Tokenizer
    engine: Engine
    course: Course
    watchers: Watchers
    place: checkpoint.Place
    saved: Checkpoint | None = None

    def __post_init__(self) -> None:
        self._buffers = persistent_buffers(self.engine.module)

    def run(self) -> None:
        """Train.

        Raises:
            Interrupted: If a signal asked for it; a checkpoint has been written.
            NotFinite: If a number stopped being one; the last good checkpoint stays.
        """
        with Signals() as signals, MetricsLog(self.folder.metrics, write=self.process.first) as log:
            if self.place.step > 0 and not self.watchers.evaluated(self.place.step):
                self._evaluate_if_due(signals)
            self.watchers.speed.start()
            while self.place.step < self.course.num_steps:
                if not self.step(signals, log):
                    self._leave(signals)
                with self.watchers.speed.paused():
                    self._between_steps(signals)

    def step(self, signals: Signals, log: MetricsLog) -> bool:
        """One optimizer step; False if a signal came before its last micro-step, and all of it was taken back."""
        before = rng.capture(self.process.device), [buffer.clone() for buffer in self._buffers]
        number, sizes = self.place.step, self.course.sizes
        data, draw = self.course.steps.step(number), self.course.drawer.draw(number, sizes)
        metrics = StepMetrics(shift=draw.per == "sequence")
        if data.scored == 0:
            raise ValueError(f"step {number + 1}: none of its {sizes.batch} sequences has a token to learn")
        for micro_step, batch in enumerate(data.batches()):
            loops = draw.loops(sizes, self.process.rank, micro_step)
            counts = Counts.of(batch, loops)
            parts = sizes.accumulation * sizes.world
            share, token_share = counts.scored * parts / data.scored, counts.tokens * parts / data.tokens
            batch = batch.to(self.process.device, non_blocking=True)
            metrics.add(self.engine.micro_step(batch, loops, number, share, token_share), counts)
            if micro_step + 1 < sizes.accumulation:
                self.engine.next_micro_step()
                if self._wanted(signals):
                    self._take_back(*before)
                    return False
        self._finish_step(data, draw, metrics, log)
        return True

    def _finish_step(self, data: StepData, draw: Draw, metrics: StepMetrics, log: MetricsLog) -> None:
        """Update the weights, once the numbers have been looked at; write a line."""
        step, sizes = self.place.step + 1, self.course.sizes
        lr = self.course.rate.at(self.place.step, self.course.num_steps)
        tokens = int(self.process.sum([float(metrics.tokens)])[0])
        logged = step % self.recipe.train.log_every == 0 or step == self.course.num_steps
        values = metrics.read(self.process, self.engine.grad_norm()) if logged else None
        if values is not None and (fault := values.fault(draw.total(sizes))):
            raise NotFinite(step, fault, self.saved.path if self.saved else None)
        grad_norm = self.engine.update(lr)
        if grad_norm is not None and not math.isfinite(grad_norm):
            raise NotFinite(step, f"the gradient's norm is {grad_norm}", self.saved.path if self.saved else None)
        flops = None if self.course.flops is None else self.course.flops.step(draw, tokens)
        spent = self.place.flops
        self.place = replace(
            self.place,
            step=step,
            sequences=self.place.sequences + sizes.batch,
            tokens=self.place.tokens + tokens,
            flops=None if flops is None or spent is None else spent + flops,
        )
        self.watchers.speed.add(tokens, flops)
        if values is not None:
            record = line(
                values,
                step=step,
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
            self.watchers.trackers.log(step, record)

    def _between_steps(self, signals: Signals) -> None:
        """Save, leave if asked to, evaluate; in this order, so that no evaluation can cost a checkpoint."""
        step, every = self.place.step, self.recipe.train.checkpoint.every
        if step == self.course.num_steps or (every is not None and step % every == 0):
            self._save()
        if step < self.course.num_steps and self._wanted(signals):
            self._leave(signals)
        self._evaluate_if_due(signals)

    def _evaluate_if_due(self, signals: Signals) -> None:
        step, every = self.place.step, self.recipe.evaluate.every
        if step != self.course.num_steps and (every is None or step % every != 0):
            return
        before = rng.capture(self.process.device)
        stopped = False
        try:
            # ranks that share an evaluation must leave it together
            with signals.stopping_at_once() if self.process.world == 1 else nullcontext():
                self.watchers.evaluate(step)
        except EvaluationStopped:
            stopped = True
        finally:
            self.engine.module.train()
            rng.restore(before, self.process.device)
        if self.process.any(stopped):
            self._leave(signals)

    def _save(self) -> None:
        finite = [parameter.detach().isfinite().all() for parameter in self.engine.module.parameters()]
        if not torch.stack(finite).all():
            raise NotFinite(self.place.step, "a weight is not finite", self.saved.path if self.saved else None)
        checkpoint.save(
            self.folder,
            self.place,
            recipe=self.recipe,
            engine=self.engine,
            tokenizer=self.tokenizer,
            process=self.process,
            generators=rng.capture(self.process.device),
        )
        self.saved = Checkpoint(self.folder.checkpoint(self.place.step), self.place.step)

    def _leave(self, signals: Signals) -> None:
        """Save where the run stands, and end it."""
        if self.saved is None or self.saved.step != self.place.step:
            self._save()
        assert self.saved is not None
        # without a signal of its own a rank leaves because another one got it
        signum = signals.CAUGHT[-1] if signals.wanted is None else signals.wanted
        raise Interrupted(signum, self.place.step, self.saved.path)

    def _wanted(self, signals: Signals) -> bool:
        """Whether a signal came on any rank, so that all leave at the same place."""
        return self.process.any(signals.wanted is not None)

    def _take_back(self, generators: dict[str, Tensor], buffers: list[Tensor]) -> None:
        """Undo what the micro-steps of an unfinished step changed besides gradients."""
        rng.restore(generators, self.process.device)
        with torch.no_grad():
            for buffer, old in zip(self._buffers, buffers, strict=True):
                buffer.copy_(old)


def persistent_buffers(module: torch.nn.Module) -> list[Tensor]:
    """Buffers that are part of the state and so may change in training: running scales and the like."""
    saved = module.state_dict(keep_vars=True)
    return [buffer for name, buffer in module.named_buffers() if name in saved]
