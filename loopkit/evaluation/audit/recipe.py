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
    width = f"width {subject.model.width}{_original_width(subject.model.width, recipe.model.width)}"
    return Audit(
        subject=recipe.name,
        measured_on=f"a surrogate at its first weights: {width}, "
        f"{subject.model.layers} layers, {subject.loops.total} loops, {rows} x {length} random tokens, fp64",
        scale=scale,
        recurrence=Recurrence(),
        remedies=choices,
        reads_input=reads_input(subject),
    )


def _original_width(width: int, original: int) -> str:
    """Describe the recipe's width, if the surrogate is narrower."""
    return "" if width == original else f" instead of {original}"


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
        "blind spot: no loss sees or holds the scale of the state, and every loop keeps it, so its norm may drift; "
        "loopkit audit says what to change"
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
