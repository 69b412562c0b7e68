"""The figures of each depth, computed from sums and probe results. No torch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from loopkit.components.task import Corpus, Likelihood, Task
from loopkit.errors import UserError

GROUPS = "groups"
"""Key of the figures of groups of answers, in the row of a depth or of a task."""

GroupedMarks = tuple[str | None, Mapping[str, float]]
"""The group of an answer, and its marks."""


def compute_task_figures(
    tasks: Mapping[str, Task], total: Likelihood, examples: Sequence[Likelihood]
) -> dict[str, Any]:
    """Compute the figures of every task at one depth: overall and for each group of examples.

    Args:
        tasks: By name.
        total: Likelihood of the whole corpus.
        examples: Likelihood of each example, for requests by example.

    Raises:
        UserError: If two tasks give a figure of the same name.
    """
    figures = [compute_totals(task, list(_marks(task, total, examples))) for task in tasks.values()]
    names = list(tasks)
    groups = [part.pop(GROUPS, {}) for part in figures]
    by_group = {
        label: merge_maps([part.get(label, {}) for part in groups], names, "figure")
        for label in sorted({label for part in groups for label in part}, key=_natural)
    }
    return merge_maps(figures, names, "figure") | ({GROUPS: by_group} if by_group else {})


def compute_totals(task: Task, answers: Sequence[GroupedMarks]) -> dict[str, Any]:
    """Compute the figures of a task from the marks of all answers, and under ``groups`` those of each group."""
    figures: dict[str, Any] = dict(task.total([dict(marks) for _, marks in answers]))
    labels = sorted({group for group, _ in answers if group is not None}, key=_natural)
    by_group = {label: task.total([dict(marks) for group, marks in answers if group == label]) for label in labels}
    return figures | ({GROUPS: by_group} if by_group else {})


def _marks(task: Task, total: Likelihood, examples: Sequence[Likelihood]) -> Iterator[GroupedMarks]:
    for request in task.requests():
        by_example = isinstance(request, Corpus) and request.by_example
        for answer in examples if by_example else [total]:
            yield task.group(request, answer), task.mark(request, answer)


def _natural(label: str) -> list[tuple[int, str]]:
    """Sort key that places ``9 empty`` before ``10 empty``."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", label)]


def probe_figures(
    results: Sequence[Mapping[str, Mapping[int, Any]]], names: Sequence[str], depth: int
) -> dict[str, Any]:
    """Return the figures of every probe at one depth; a probe without a value there adds none.

    Args:
        results: ``ProbeResult.by_depth`` of each probe.
        names: Their names in the recipe.
        depth: In loops.

    Raises:
        UserError: If two probes give a figure of the same name.
    """
    at_depth = [
        {figure: values[depth] for figure, values in by_depth.items() if depth in values} for by_depth in results
    ]
    return merge_maps(at_depth, names, "figure")


def merge_maps(parts: Iterable[Mapping[str, Any]], names: Sequence[str], what: str) -> dict[str, Any]:
    """Merge several maps into one.

    Args:
        parts: The maps.
        names: Name of each map, for the error message.
        what: What an entry is, for the error message.

    Raises:
        UserError: If two of them have an entry of the same name.
    """
    result: dict[str, Any] = {}
    owner: dict[str, str] = {}
    for part, name in zip(parts, names, strict=True):
        for key, value in part.items():
            if key in result:
                raise UserError(f"{owner[key]} and {name} both define the {what} {key!r}; remove one of them")
            result[key], owner[key] = value, name
    return result
