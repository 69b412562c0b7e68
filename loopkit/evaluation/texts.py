"""An evaluation by texts: every task that asks for some, at every depth, as a result like any other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from loopkit.components.task import Task
from loopkit.components.tokenizer import Tokenizer
from loopkit.errors import UserError
from loopkit.evaluation.completion_file import CompletionFile
from loopkit.evaluation.context import Dtype, device_name, ready, tokenizer_facts
from loopkit.evaluation.generation import Asked, Writer, Writing, ask
from loopkit.evaluation.result import Conditions, ModelSource, Result, TrainedDepths, row_of
from loopkit.evaluation.shards import ALONE, EvaluationShard
from loopkit.inference import not_cacheable, positions_of
from loopkit.registry import Spec

if TYPE_CHECKING:
    from loopkit.model import LoopedModel
    from loopkit.recipe.format import EvaluateConfig


def evaluate_texts(
    model: LoopedModel,
    tokenizer: Tokenizer,
    settings: EvaluateConfig,
    depths: Sequence[int],
    device: torch.device,
    *,
    dtype: Dtype,
    trained: TrainedDepths | None,
    origin: ModelSource,
    file: CompletionFile,
    writing: Writing,
    shard: EvaluationShard = ALONE,
) -> Result:
    """Have the texts written that tasks ask for, and mark them.

    Args:
        model: The model; it is given back in the mode it had.
        tokenizer: The model's.
        settings: The recipe's ``evaluate`` section; its tasks that score text are left out.
        depths: In loops.
        device: Where the model is moved.
        dtype: Arithmetic.
        trained: Depths of training, if known.
        origin: Where the model came from.
        file: Texts that are known, and where new ones go.
        writing: Told about each text.
        shard: Which rank this is; every one of them calls this.

    Raises:
        ValueError: If a task's data is missing or wrong, or a prompt does not fit the model.
    """
    tasks: dict[str, Task] = {
        name: spec.build()
        for name, spec in settings.tasks.items()
        if not spec.target.scores  # type: ignore[attr-defined]
    }
    asked = ask(tasks, tokenizer, model)
    with ready(model, device, dtype):
        figures = Writer(model, tokenizer, dtype, settings.batch, file, writing, shard).figures(asked, depths)
    conditions = Conditions(
        split="-".join(tasks),
        tokenizer=tokenizer_facts(tokenizer),
        dtype=dtype,
        device=device_name(device),
        batch=settings.batch,
    )
    return Result(
        origin=origin,
        conditions=conditions,
        trained=trained,
        core_calls=0,
        batches=0,
        passes="one per depth",
        depths=[row_of(depth, trained, figures[depth]) for depth in depths],
        notes=_notes(model, asked),
        tasks=_facts(asked, settings.tasks),
        completions=None if file.path is None else file.path.name,
    )


def joined(scored: Result, texts: Result) -> Result:
    """One result of two: what was scored, and what was written, at the same depths.

    Raises:
        ValueError: If a task has the name of a figure.
    """
    rows = []
    for a, b in zip(scored.depths, texts.depths, strict=True):
        if both := (a.keys() & b.keys()) - {"depth", "trained", "not_finite"}:
            raise UserError(f"a task and a figure are both called {min(both)!r}; give the task another name")
        lost = [*a.get("not_finite", ()), *b.get("not_finite", ())]
        rows.append({**a, **b, **({"not_finite": lost} if lost else {})})
    notes = [*scored.notes, *texts.notes]
    return replace(scored, depths=rows, notes=notes, tasks=texts.tasks, completions=texts.completions)


def _facts(asked: Sequence[Asked], specs: Mapping[str, Spec]) -> dict[str, dict[str, Any]]:
    """What a result says of its tasks: their options, what they tell of themselves, and one prompt in full."""
    return {
        item.name: {
            **specs[item.name].plain(),
            **item.task.facts(),
            **({"example_prompt": item.requests[0].prompt} if item.requests else {}),
        }
        for item in asked
    }


def _notes(model: LoopedModel, asked: Sequence[Asked]) -> list[str]:
    """What a reader of figures from texts should know."""
    notes = []
    if parts := not_cacheable(model):
        notes.append(
            f"without a cache, because {' and '.join(parts)} cannot have one: every token costs the whole text"
        )
    limit = positions_of(model)
    short = [
        item.name
        for item in asked
        if limit is not None and any(n + r.max_tokens > limit for n, r in zip(item.lengths, item.requests, strict=True))
    ]
    if short:
        which = f"texts of {', '.join(short)}"
        notes.append(f"the model's {limit} positions end {which} before max_tokens: those count as unfinished")
    return notes
