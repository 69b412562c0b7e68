"""The audit of a trained run, on its weights and its data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from loopkit.data import prepare
from loopkit.evaluation.audit.findings import Audit, Recurrence
from loopkit.evaluation.audit.input_path import reads_input
from loopkit.evaluation.audit.remedies import remedies
from loopkit.evaluation.audit.scale import scale_of
from loopkit.evaluation.audit.stability import radii
from loopkit.evaluation.audit.subject import AuditSubject
from loopkit.evaluation.audit.update_geometry import MANY
from loopkit.evaluation.result import TrainedDepths
from loopkit.evaluation.trained_run import TrainedRun, open_run
from loopkit.loop import Batch

SEQUENCES, LENGTH, LOOPS = 4, 64, 64
"""Sequences, tokens of each, and loops at most."""


def audit_run(
    run: str | Path | None = None,
    *,
    step: int | None = None,
    device: torch.device | str | None = None,
    plugins: Sequence[Path] = (),
    root: Path = Path("runs"),
    cache: Path | None = None,
) -> Audit:
    """Audit a run: the same measurements on its weights, and the spectral radius at the depths it was trained at.

    Args:
        run: Its folder or its name; None takes the newest.
        step: The checkpoint after so many optimizer steps; None takes the newest whole one.
        device: Where it runs; None is the CPU. Most is measured in fp64.
        plugins: Files with further components, beside those that the run was made with.
        root: Where runs lie.
        cache: Folder of the data cache; see ``cache_folder`` for the default.

    Raises:
        NoRun: If there is no such run.
        CheckpointProblem: If the checkpoint is missing or damaged, naming the file.
        ValueError: If the state is not finite, or the data is missing.
    """
    opened = open_run(run, step=step, plugins=plugins, device=device, root=root)
    batch = _batch(opened, cache).to(next(opened.model.parameters()).device)
    depths = trained_depths(opened.trained, opened.model.max_depth)
    recurrence = Recurrence(radii(opened.model, batch, depths))  # in fp32: it needs many products and no small numbers
    subject = AuditSubject.of(opened.model, opened.recipe, batch, LOOPS)
    scale = scale_of(subject, many=MANY)
    rows, length = batch.tokens.shape
    return Audit(
        subject=f"{opened.folder.name}, {opened.checkpoint.path.name}",
        measured_on=f"the run's weights, {rows} x {length} tokens of {opened.recipe.evaluate.split}, "
        "fp64, spectral radius in fp32",
        scale=scale,
        recurrence=recurrence,
        remedies=remedies(opened.recipe) if scale.verdict == "blind spot" else {},
        reads_input=reads_input(subject),
        notes=[f"{warning}; using {opened.checkpoint.path.name}" for warning in opened.warnings],
    )


def trained_depths(trained: TrainedDepths, max_depth: int | None = None) -> list[int]:
    """The fewest, the mean and the most loops of training, as far as they can be run in reasonable time."""
    most = min(LOOPS, trained.max if max_depth is None else min(trained.max, max_depth))
    return sorted({min(depth, most) for depth in (trained.min, round(trained.mean), trained.max)})


def _batch(opened: TrainedRun, cache: Path | None) -> Batch:
    """The beginnings of the first few sequences that an evaluation would score."""
    recipe = opened.recipe
    prepared = prepare(recipe.data, cache=cache, splits=(recipe.evaluate.split,), tokenizer=opened.tokenizer)
    examples = prepared.splits[recipe.evaluate.split].examples(recipe.data.length)
    batch = examples.batch(range(min(SEQUENCES, len(examples))))
    short = batch.tokens_before(LENGTH)
    return short if short.num_scored > 0 else batch  # a long prompt may leave nothing to score at the beginning
