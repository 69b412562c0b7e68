"""The audit of a recipe on a small surrogate model at initialization."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from loopkit.evaluation.audit.findings import Audit, Recurrence
from loopkit.evaluation.audit.input_path import reads_input
from loopkit.evaluation.audit.remedies import remedies
from loopkit.evaluation.audit.scale import scale_of
from loopkit.evaluation.audit.surrogate import surrogate
from loopkit.evaluation.audit.update_geometry import MANY
from loopkit.plural import plural
from loopkit.recipe import Recipe


def audit_recipe(recipe: Recipe) -> Audit:
    """Audit a recipe before training: takes seconds on a CPU and needs no data.

    Raises:
        Exception: Any exception of a component while it runs.
    """
    with _one_thread():
        subject = surrogate(recipe)
        scale = scale_of(subject, many=MANY)
        choices = remedies(recipe) if scale.verdict == "blind spot" else {}
    rows, length = subject.batch.tokens.shape
    model, max_loops = subject.model, recipe.train.schedule.build().bounds[1]
    width = f"width {model.width}{_instead_of(model.width, recipe.model.width)}"
    layers = f"{plural(model.core_layers, 'layer')} in the core"
    layers += _instead_of(model.core_layers, recipe.model.core.options.get("layers"))
    loops = f"{plural(subject.loops.total, 'loop')}{_instead_of(subject.loops.total, max_loops)}"
    batch = f"{rows} x {length} random tokens"
    return Audit(
        subject=recipe.name,
        measured_on=f"a surrogate at its first weights: {width}, {layers}, {loops}, {batch}, fp64",
        scale=scale,
        recurrence=Recurrence(),
        remedies=choices,
        reads_input=reads_input(subject),
    )


def _instead_of(size: int, original: object) -> str:
    """Describe the recipe's size, if that of the surrogate differs."""
    return "" if original is None or size == original else f" instead of {original}"


def warn_of_blind_spot(recipe: Recipe) -> str | None:
    """Return a one-line warning before training, or ``None`` if the state norm is controlled.

    It takes a fraction of a second on a CPU and changes no random state. It never raises: a recipe that the audit
    cannot measure may still train, and the line then contains the error.
    """
    try:
        with _one_thread():
            verdict = scale_of(surrogate(recipe)).verdict
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else "no reason given"
        return f"the audit could not measure this recipe: {type(error).__name__}: {reason}"
    if verdict == "controlled":
        return None
    return (
        "blind spot: no loss depends on the state norm and no component bounds it, so the norm may drift; "
        "run loopkit audit for remedies"
    )


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute on one thread: on matrices this small, two threads took three times as long."""
    previous = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(previous)
