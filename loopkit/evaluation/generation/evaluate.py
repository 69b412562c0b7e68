"""Evaluation of the tasks that generate completions, as a ``Result`` that merges with the scored one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from loopkit.components.task import Task
from loopkit.components.tokenizer import Tokenizer
from loopkit.errors import UserError
from loopkit.evaluation.context import Dtype, device_name, evaluation_mode, tokenizer_facts
from loopkit.evaluation.generation.completion_file import CompletionFile
from loopkit.evaluation.generation.completions import (
    CompletionGenerator,
    CompletionProgress,
    GenerationTask,
    build_generation_tasks,
)
from loopkit.evaluation.result import Conditions, ModelSource, Result, TrainedDepths, build_row
from loopkit.evaluation.settings import generates
from loopkit.evaluation.shards import ALONE, EvaluationShard
from loopkit.inference import max_positions, uncacheable_components
from loopkit.registry import Spec

if TYPE_CHECKING:
    from loopkit.model import LoopedModel
    from loopkit.recipe.format import EvaluateConfig


def evaluate_generation(
    model: LoopedModel,
    tokenizer: Tokenizer,
    config: EvaluateConfig,
    depths: Sequence[int],
    *,
    dtype: Dtype,
    trained: TrainedDepths | None,
    origin: ModelSource,
    file: CompletionFile,
    on_completion: CompletionProgress,
    shard: EvaluationShard = ALONE,
) -> Result:
    """Generate the completions of every task that needs some, and mark them.

    Args:
        model: The model; it returns to its previous mode.
        tokenizer: The model's.
        config: The recipe's ``evaluate`` section; tasks that score text are ignored.
        depths: In loops.
        dtype: Arithmetic.
        trained: Depths of training, if known.
        origin: Where the model comes from.
        file: Stored completions, to which new ones are added.
        on_completion: Called after each completion.
        shard: This rank's part of the work; every rank calls this function.

    Raises:
        UserError: If a task's data is missing or wrong, or a prompt does not fit the model.
    """
    specs = {name: spec for name, spec in config.tasks.items() if generates(spec)}
    built: dict[str, Task] = {name: spec.build() for name, spec in specs.items()}
    tasks = build_generation_tasks(built, tokenizer, model)
    with evaluation_mode(model, dtype):
        generator = CompletionGenerator(model, tokenizer, dtype, config.batch, file, on_completion, shard)
        figures = generator.figures(tasks, depths)
    conditions = Conditions(
        split="-".join(specs),
        tokenizer=tokenizer_facts(tokenizer),
        dtype=dtype,
        device=device_name(next(model.parameters()).device),
        batch=config.batch,
    )
    return Result(
        origin=origin,
        conditions=conditions,
        trained=trained,
        core_calls=0,
        batches=0,
        passes="one per depth",
        depths=[build_row(depth, trained, figures[depth]) for depth in depths],
        notes=_notes(model, tasks),
        tasks=_describe_tasks(tasks, specs),
        completions=None if file.path is None else file.path.name,
    )


def merge_results(a: Result, b: Result) -> Result:
    """Merge the results of different tasks at the same depths; only the first may have scored a split.

    Raises:
        UserError: If a task has the name of a figure.
    """
    rows = []
    for first, second in zip(a.depths, b.depths, strict=True):
        if clashes := (first.keys() & second.keys()) - {"depth", "trained", "not_finite"}:
            raise UserError(f"a task and a figure are both called {min(clashes)!r}; rename the task")
        not_finite = [*first.get("not_finite", ()), *second.get("not_finite", ())]
        rows.append({**first, **second, **({"not_finite": not_finite} if not_finite else {})})
    has_split = a.conditions.slice is not None
    split = a.conditions.split if has_split else f"{a.conditions.split}-{b.conditions.split}"
    return replace(
        a,
        conditions=replace(a.conditions, split=split),
        core_calls=a.core_calls + b.core_calls,
        batches=a.batches + b.batches,
        depths=rows,
        notes=list(dict.fromkeys([*a.notes, *b.notes])),
        tasks={**a.tasks, **b.tasks},
        completions=b.completions if a.completions is None else a.completions,
    )


def _describe_tasks(tasks: Sequence[GenerationTask], specs: Mapping[str, Spec]) -> dict[str, dict[str, Any]]:
    """Return the options and facts of each task, with one complete prompt."""
    return {
        item.name: {
            **specs[item.name].plain(),
            **item.task.facts(),
            **({"example_prompt": item.requests[0].prompt} if item.requests else {}),
        }
        for item in tasks
    }


def _notes(model: LoopedModel, tasks: Sequence[GenerationTask]) -> list[str]:
    notes = []
    if components := uncacheable_components(model):
        notes.append(
            f"no key-value cache, because {' and '.join(components)} cannot use one: "
            "every token recomputes the whole sequence"
        )
    limit = max_positions(model)
    truncated = [
        item.name
        for item in tasks
        if limit is not None and any(n + r.max_tokens > limit for n, r in zip(item.lengths, item.requests, strict=True))
    ]
    if truncated:
        notes.append(
            f"the model's {limit} positions end completions of {', '.join(truncated)} before max_tokens: "
            "those count as unfinished"
        )
    return notes
