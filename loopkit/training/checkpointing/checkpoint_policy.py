"""Which checkpoints of a run are written, and which of them stay."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from loopkit.components.tokenizer import Tokenizer
from loopkit.evaluation import results_of
from loopkit.recipe import Recipe
from loopkit.runs.best import BestFigure, better, figure_of, read_best, write_best
from loopkit.runs.checkpoint import Checkpoint, prune_checkpoints
from loopkit.runs.folder import RunFolder
from loopkit.training.checkpointing import checkpoint, rng
from loopkit.training.checkpointing.checkpoint import TrainState
from loopkit.training.distributed.process_group import Process
from loopkit.training.errors import NotFinite
from loopkit.training.step.engine import Engine


@dataclass
class CheckpointPolicy:
    """Write checkpoints; the newest few stay, and the best.

    Args:
        recipe: The resolved recipe.
        folder: The run.
        process: Which rank this is; the first one removes.
        tokenizer: Saved along.
        engine: What is saved.
        say: Prints a sentence.
        saved: The newest checkpoint of the run, if there is one.
    """

    recipe: Recipe
    folder: RunFolder
    process: Process
    tokenizer: Tokenizer
    engine: Engine
    say: Callable[[str], None]
    saved: Checkpoint | None = None

    def due(self, step: int, num_steps: int) -> bool:
        """Whether a checkpoint is written after so many steps: before every evaluation, where the best is to stay."""
        settings = self.recipe.train.checkpoint
        at = [settings.every] if settings.best.figure is None else [settings.every, self.recipe.evaluate.every]
        return step == num_steps or any(every is not None and step % every == 0 for every in at)

    def save(self, place: TrainState) -> None:
        """Write a checkpoint, unless this very place has one; then remove what need not stay.

        Raises:
            NotFinite: If a weight is not finite on any rank.
            WriteFailed: If it cannot be written; older ones stay.
        """
        if self.saved is not None and self.saved.step == place.step:
            return
        last = self.saved.path if self.saved else None
        finite = [parameter.detach().isfinite().all() for parameter in self.engine.module.parameters()]
        if self.process.any(not torch.stack(finite).all()):
            raise NotFinite(place.step, "a weight is not finite", last)
        self.saved = checkpoint.save(
            self.folder,
            place,
            recipe=self.recipe,
            engine=self.engine,
            tokenizer=self.tokenizer,
            process=self.process,
            generators=rng.capture(self.process.device),
            last=last,
        )
        self.prune(place.step)

    def prune(self, step: int) -> None:
        """Remove the checkpoints that need not stay; one that cannot be removed is left, with a word."""
        if not self.process.first:
            return
        settings = self.recipe.train.checkpoint
        best = read_best(self.folder.checkpoints, settings.best.figure, step) if settings.best.figure else None
        try:
            prune_checkpoints(self.folder.checkpoints, step, settings.keep, [best.step] if best else [])
        except OSError as error:
            self.say(f"warning: an old checkpoint could not be removed: {error}")

    def evaluated(self, step: int) -> Mapping[str, Any] | None:
        """See whether the checkpoint of an evaluation is the best so far.

        Returns:
            What the evaluation found at each depth, on the first rank; None where there was none.
        """
        results = results_of(self.folder, step) if self.process.first else []
        if not results:
            return None
        newest = max(results, key=lambda path: path.stat().st_mtime_ns)
        rows = json.loads(newest.read_text(encoding="utf-8"))["depths"]
        self._mark(step, rows)
        return {
            str(row["depth"]): {name: row[name] for name in row if name not in ("depth", "trained")} for row in rows
        }

    def _mark(self, step: int, rows: list[dict[str, Any]]) -> None:
        settings = self.recipe.train.checkpoint.best
        if settings.figure is None or self.saved is None or self.saved.step != step:
            return
        try:
            depth, value = figure_of(rows, settings.figure, settings.depth)
        except ValueError as problem:  # a figure may be absent because it was not finite
            self.say(f"warning: the checkpoint of step {step} is not compared: {problem}")
            return
        mark = BestFigure(step, settings.figure, depth, value)
        if better(mark, read_best(self.folder.checkpoints, settings.figure, step), settings.goal):
            write_best(self.folder.checkpoints, mark)
            self.prune(step)
