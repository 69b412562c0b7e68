"""From sums and measurements to the figures of each depth. No torch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from loopkit.components.task import Corpus, Likelihood, Task
from loopkit.errors import UserError

GROUPS = "groups"
"""Where the figures of groups of answers stand, in the row of a depth or of a task."""

Marked = tuple[str | None, Mapping[str, float]]
"""The marks of an answer, and the group that it belongs to."""


def task_figures(tasks: Mapping[str, Task], whole: Likelihood, examples: Sequence[Likelihood]) -> dict[str, Any]:
    """The figures of every task at one depth, of all that was scored and of each group of examples.

    Args:
        tasks: By name.
        whole: What the corpus cost.
        examples: What each of its examples cost, for requests by example.

    Raises:
        UserError: If two tasks give a figure of the same name.
    """
    found = [totals(task, list(_marks(task, whole, examples))) for task in tasks.values()]
    names = list(tasks)
    groups = [figures.pop(GROUPS, {}) for figures in found]
    by_group = {
        label: merged([part.get(label, {}) for part in groups], names, "figure")
        for label in sorted({label for part in groups for label in part}, key=_natural)
    }
    return merged(found, names, "figure") | ({GROUPS: by_group} if by_group else {})


def totals(task: Task, marked: Sequence[Marked]) -> dict[str, Any]:
    """The figures of a task from the marks of all answers, and under ``groups`` those of each group."""
    figures: dict[str, Any] = dict(task.total([dict(marks) for _, marks in marked]))
    labels = sorted({group for group, _ in marked if group is not None}, key=_natural)
    by_group = {label: task.total([dict(marks) for group, marks in marked if group == label]) for label in labels}
    return figures | ({GROUPS: by_group} if by_group else {})


def _marks(task: Task, whole: Likelihood, examples: Sequence[Likelihood]) -> Iterator[Marked]:
    for request in task.requests():
        by_example = isinstance(request, Corpus) and request.by_example
        for answer in examples if by_example else [whole]:
            yield task.group(request, answer), task.mark(request, answer)


def _natural(label: str) -> list[tuple[int, str]]:
    """Order in which ``9 empty`` comes before ``10 empty``."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", label)]


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
