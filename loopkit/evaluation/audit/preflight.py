"""Checks of a recipe's model before data is read: it is built on ``meta``, and a small surrogate runs."""

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
"""Loops of the trial run; the second loop is the first that reads the carry."""


def preflight(recipe: Recipe) -> None:
    """Reject a recipe whose model cannot be built, does not run, or does not depend on its input.

    Nothing is trained, downloaded or written, and no random state changes. It takes a second or two.

    Raises:
        UserError: With the failing module, an invalid tie, or a pattern without a match.
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
    _refuse_unaligned_loops(recipe, model)
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
        ignores_input = not reads_input(subject)
    except Exception:  # the model itself may run although its surrogate does not
        return
    if ignores_input:
        raise UserError(
            "the logits do not depend on the input: no path leads from the embedding to them. "
            "Set model.injection to another type than none, or model.start to a type that reads the embedding"
        )


def _refuse_unaligned_loops(recipe: Recipe, model: LoopedModel) -> None:
    """Reject parameters per loop if sequences of one pass are in different loops of their own.

    A sequence of fewer loops starts late, so the loop k of the pass, which selects the parameters, is not its own loop
    k and depends on the other sequences of the micro-batch.
    """
    if recipe.train.loops_per == "sequence" and model.max_depth is not None:
        names = {_describe(part) for part in model.modules() if getattr(part, "max_depth", None) is not None}
        raise UserError(
            f"train.loops_per: {', '.join(sorted(names - {''}))} has parameters for each loop, and sequences of a pass "
            "that start late would use those of other loops. Set train.loops_per to step or micro_step"
        )


def _describe(part: nn.Module) -> str:
    registration = getattr(type(part), "registration", None)
    return "" if registration is None else f"{registration.kind} '{registration.name}'"


def refuse_what_does_not_run(recipe: Recipe, on_meta: Exception) -> None:
    """Reject a model that does not run, but accept one that only fails on ``meta``.

    Args:
        recipe: The resolved recipe.
        on_meta: The exception of the run on ``meta``.

    Raises:
        UserError: If the surrogate does not run either; the message contains the failing module.
    """
    try:
        subject = surrogate(recipe)
    except Exception as error:
        raise UserError(f"the model of {recipe.name} cannot be built: {_format_exception(error)}") from error
    try:
        with torch.no_grad():
            subject.model.run(subject.batch, subject.loops).logits(subject.loops.total)
    except Exception as error:
        module = _failing_module(subject.model, error.__traceback__)
        raise UserError(f"the model of {recipe.name} does not run: {module}{_format_exception(error)}") from error


def _format_exception(error: Exception) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(TORCH)]
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {str(error).strip() or 'no reason given'}{where}"


def _failing_module(model: LoopedModel, trace: TracebackType | None) -> str:
    """Return the path of the innermost running module."""
    names = {id(module): name for name, module in model.named_modules() if name}
    path = ""
    while trace is not None:
        running = trace.tb_frame.f_locals.get("self")
        if isinstance(running, nn.Module) and id(running) in names:
            path = f"model.{names[id(running)]}: "
        trace = trace.tb_next
    return path
