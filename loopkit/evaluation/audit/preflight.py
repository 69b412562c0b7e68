"""What a recipe's model shows before any data is read: it is built without numbers, and a narrow twin runs."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import TracebackType

import torch
from torch import nn

from loopkit.components.schedule import Schedule
from loopkit.errors import UserError
from loopkit.evaluation.audit.input_path import reads_input
from loopkit.evaluation.audit.surrogate import VOCABULARY, surrogate
from loopkit.loop import Batch, Loops
from loopkit.model import LoopedModel, build_model
from loopkit.model.parameter_groups import freeze, parameter_groups
from loopkit.objective import build_objective
from loopkit.recipe import Recipe

TORCH = str(Path(torch.__file__).parent)
LOOPS = 2
"""Loops of the trial run: the second is the first one that reads what the carry gives."""


def preflight(recipe: Recipe) -> None:
    """Refuse a recipe whose model cannot be built, does not run, or does not depend on its input.

    Nothing is trained, downloaded or written, and no random state is touched. It takes a second or two.

    Raises:
        UserError: With the part of the model at fault, a tie that leads nowhere, or a pattern that matches nothing.
    """
    schedule: Schedule = recipe.train.schedule.build()
    model = build_model(
        recipe.model,
        vocabulary=recipe.model.vocabulary or VOCABULARY,
        max_length=recipe.data.length,
        max_loops=schedule.bounds[1],
        device="meta",
    )
    build_objective(recipe.objective)
    freeze(model, recipe.train.trainable)
    recipe.train.optimizer.build().state_numbers(parameter_groups(model))
    try:
        tokens = torch.zeros(1, recipe.data.length, dtype=torch.int64, device="meta")
        with torch.no_grad():
            model.eval().run(Batch.of(tokens), Loops.fixed(min(LOOPS, schedule.bounds[1]))).readout(1)
    except Exception as error:
        refuse_what_does_not_run(recipe, error)
    try:
        subject = surrogate(recipe)
        dead = not reads_input(subject)
    except Exception:  # the model itself may run although its narrow twin does not
        return
    if dead:
        raise UserError(
            "the logits do not depend on the input: nothing leads from the embedding to them, whatever is learned. "
            "Give model.injection something other than none, or let model.start begin with the embedding"
        )


def refuse_what_does_not_run(recipe: Recipe, on_meta: Exception) -> None:
    """Tell a model that does not run from one that only does not run without numbers.

    Args:
        recipe: The resolved recipe.
        on_meta: What was raised when it ran on ``meta``.

    Raises:
        UserError: If its narrow twin does not run either; it names the part at fault.
    """
    try:
        subject = surrogate(recipe)
    except Exception as error:
        raise UserError(f"the model of {recipe.name} cannot be built: {_said(error)}") from error
    try:
        with torch.no_grad():
            subject.model.run(subject.batch, subject.loops).logits(subject.loops.total)
    except Exception as error:
        place = _part_at_fault(subject.model, error.__traceback__)
        raise UserError(f"the model of {recipe.name} does not run: {place}{_said(error)}") from error


def _said(error: Exception) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(TORCH)]
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {str(error).strip() or 'no reason given'}{where}"


def _part_at_fault(model: LoopedModel, trace: TracebackType | None) -> str:
    """The innermost part of a model that was running."""
    names = {id(module): name for name, module in model.named_modules() if name}
    place = ""
    while trace is not None:
        running = trace.tb_frame.f_locals.get("self")
        if isinstance(running, nn.Module) and id(running) in names:
            place = f"model.{names[id(running)]}: "
        trace = trace.tb_next
    return place
