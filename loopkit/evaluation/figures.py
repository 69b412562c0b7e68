"""From sums and measurements to the figures of each depth. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from loopkit.components.task import Answer, Task
from loopkit.errors import UserError


def task_figures(tasks: Mapping[str, Task], answer: Answer) -> dict[str, float]:
    """The figures of every task at one depth, whose corpus cost what ``answer`` says.

    Raises:
        ValueError: If two tasks give a figure of the same name.
    """
    return merged(
        [task.total([task.mark(request, answer) for request in task.requests()]) for task in tasks.values()],
        list(tasks),
        "figure",
    )


def probe_figures(found: Sequence[Mapping[str, Mapping[int, Any]]], names: Sequence[str], depth: int) -> dict[str, Any]:
    """The figures of every probe at one depth; a probe that has none there adds none.

    Args:
        found: ``Measured.by_depth`` of each probe.
        names: Their names in the recipe.
        depth: In loops.

    Raises:
        ValueError: If two probes give a figure of the same name.
    """
    at_depth = [{figure: values[depth] for figure, values in by_depth.items() if depth in values} for by_depth in found]
    return merged(at_depth, names, "figure")


def merged(parts: Iterable[Mapping[str, Any]], names: Sequence[str], what: str) -> dict[str, Any]:
    """Several maps as one.

    Raises:
        ValueError: If two have an entry of the same name.
    """
    whole: dict[str, Any] = {}
    owner: dict[str, str] = {}
    for part, name in zip(parts, names, strict=True):
        for key, value in part.items():
            if key in whole:
                raise UserError(f"{owner[key]} and {name} both give a {what} called {key!r}; remove one of them")
            whole[key], owner[key] = value, name
    return whole
