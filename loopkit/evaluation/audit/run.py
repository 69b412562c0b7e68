"""The audit of a trained run on its weights and data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from loopkit.data import prepare
from loopkit.evaluation.audit.findings import Audit, Recurrence
from loopkit.evaluation.audit.input_path import reads_input
from loopkit.evaluation.audit.remedies import remedies
from loopkit.evaluation.audit.scale import scale_of
from loopkit.evaluation.audit.settling import measure_settling
from loopkit.evaluation.audit.stability import radii
from loopkit.evaluation.audit.subject import AuditSubject
from loopkit.evaluation.audit.update_geometry import MANY
from loopkit.evaluation.result import TrainedDepths
from loopkit.evaluation.trained_run import TrainedRun, open_run
from loopkit.loop import Batch
from loopkit.runs.checkpoint import Weights

SEQUENCES, LENGTH, LOOPS = 4, 64, 64
"""Maximum number of sequences, tokens per sequence, and loops."""


def audit_run(
    run: str | Path | None = None,
    *,
    step: int | None = None,
    weights: Weights = "trained",
    device: torch.device | str | None = None,
    plugins: Sequence[Path] = (),
    root: Path = Path("runs"),
    cache: Path | None = None,
) -> Audit:
    """Audit a run: measure its weights as for a recipe, and the spectral radius at the trained depths.

    Args:
        run: Its folder or its name; None is the newest.
        step: Optimizer step of the checkpoint; None is the newest complete one.
        weights: ``trained``, or ``ema`` for their exponential moving average.
        device: Device of the model; None is the CPU. Most measurements are in fp64.
        plugins: Files with components, in addition to those of the run.
        root: Folder of the runs.
        cache: Folder of the data cache; see ``cache_folder`` for the default.

    Raises:
        NoRun: If the run does not exist.
        CheckpointProblem: If the checkpoint is missing or damaged, or has no average; the message contains the file.
        UserError: If the state is not finite, or the data is missing.
    """
    opened = open_run(run, step=step, weights=weights, plugins=plugins, device=device, root=root)
    batch = _batch(opened, cache).to(next(opened.model.parameters()).device)
    depths = trained_depths(opened.trained, opened.model.max_depth)
    recurrence = Recurrence(radii(opened.model, batch, depths), measure_settling(opened.model, batch, LOOPS))
    subject = AuditSubject.of(opened.model, opened.recipe, batch, LOOPS)
    scale = scale_of(subject, many=MANY)
    rows, length = batch.tokens.shape
    return Audit(
        subject=f"{opened.folder.name}, {opened.label}",
        measured_on=f"the run's weights, {rows} x {length} tokens of {opened.recipe.evaluate.split}, "
        "fp64, spectral radius in fp32",
        scale=scale,
        recurrence=recurrence,
        remedies=remedies(opened.recipe) if scale.verdict == "blind spot" else {},
        reads_input=reads_input(subject),
        notes=[f"{warning}; using {opened.checkpoint.path.name}" for warning in opened.warnings],
    )


def trained_depths(trained: TrainedDepths, max_depth: int | None = None) -> list[int]:
    """Return the minimum, mean and maximum loops of training, limited to ``LOOPS`` to bound the time."""
    limit = min(LOOPS, trained.max if max_depth is None else min(trained.max, max_depth))
    return sorted({min(depth, limit) for depth in (trained.min, round(trained.mean), trained.max)})


def _batch(opened: TrainedRun, cache: Path | None) -> Batch:
    """Return the first tokens of the first sequences that an evaluation scores."""
    recipe = opened.recipe
    prepared = prepare(recipe.data, cache=cache, splits=(recipe.evaluate.split,), tokenizer=opened.tokenizer)
    examples = prepared.splits[recipe.evaluate.split].examples(recipe.data.length)
    batch = examples.batch(range(min(SEQUENCES, len(examples))))
    truncated = batch.tokens_before(LENGTH)
    return truncated if truncated.num_scored > 0 else batch  # the first tokens may all belong to a prompt
