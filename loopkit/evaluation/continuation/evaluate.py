"""Evaluation of the tasks that compare options, as a ``Result`` that merges with others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loopkit.components.task import Choose, Likelihood, OptionLikelihoods, Task
from loopkit.components.tokenizer import Tokenizer
from loopkit.evaluation.context import device_name, evaluation_mode, tokenizer_facts
from loopkit.evaluation.continuation.encode import Continuation, encode_continuations
from loopkit.evaluation.continuation.score import ContinuationBatches, score_continuations
from loopkit.evaluation.depth_sweep import format_passes, passes_note
from loopkit.evaluation.figures import compute_totals
from loopkit.evaluation.result import Conditions, ModelSource, Result, TrainedDepths, build_row
from loopkit.evaluation.settings import EvaluationSettings, chooses
from loopkit.evaluation.shards import ALONE, EvaluationShard
from loopkit.plural import plural

if TYPE_CHECKING:
    from loopkit.model import LoopedModel
    from loopkit.registry import Spec


@dataclass(frozen=True)
class ChoiceTask:
    """A task with its requests, and each distinct option with its encoding.

    Equal options are scored once, so that their likelihoods are equal in any batch.
    """

    name: str
    task: Task
    requests: Sequence[Choose]
    options: Mapping[tuple[str, str], Continuation]

    def figures(self, likelihoods: Sequence[Likelihood]) -> dict[str, Any]:
        """Compute the figures at one depth from the likelihood of every distinct option."""
        by_option = dict(zip(self.options, likelihoods, strict=True))
        marks = []
        for request in self.requests:
            own = [by_option[option] for option in request.options]
            answer = OptionLikelihoods(tuple(item.nll for item in own), tuple(item.tokens for item in own))
            marks.append((self.task.group(request, answer), self.task.mark(request, answer)))
        return compute_totals(self.task, marks)

    def describe(self, spec: Spec, window: int | None) -> dict[str, Any]:
        """Return the options of the task, its facts, and one complete question."""
        record = {**spec.plain(), **self.task.facts()}
        if window is not None:
            record["window"] = window
        if self.requests:
            record["example_prompt"] = self.requests[0].options[0][0]
            record["example_options"] = [text for _, text in self.requests[0].options]
        return record


def evaluate_choices(
    model: LoopedModel,
    tokenizer: Tokenizer,
    settings: EvaluationSettings,
    depths: Sequence[int],
    *,
    reading: Mapping[str, Any],
    trained: TrainedDepths | None,
    origin: ModelSource,
    shard: EvaluationShard = ALONE,
) -> Result:
    """Compute the likelihood of every option at every depth, and mark the questions.

    Args:
        model: The model; it returns to its previous mode.
        tokenizer: The model's.
        settings: The recipe's choices; tasks of other kinds are ignored.
        depths: In loops.
        reading: ``read_as`` and ``trained``, as for ``sweep``.
        trained: Depths of training, if known.
        origin: Where the model comes from.
        shard: This rank's part of the work; every rank calls this function.

    Raises:
        UserError: If a task's data is missing or wrong, or an option does not fit the window.
    """
    config = settings.config
    window = model.max_length if settings.length is None else settings.length
    device = next(model.parameters()).device
    specs = {name: spec for name, spec in config.tasks.items() if chooses(spec)}
    tasks = [_build_task(name, spec, tokenizer, window) for name, spec in specs.items()]
    figures: dict[int, dict[str, Any]] = {depth: {} for depth in depths}
    core_calls = num_batches = 0
    for task in tasks:
        pad = 0 if tokenizer.pad is None else tokenizer.pad
        batches = ContinuationBatches(list(task.options.values()), config.batch, device, pad)
        with evaluation_mode(model, settings.dtype):
            answers, sums = score_continuations(model, batches, depths, shard=shard, **reading)
        for depth in depths:
            figures[depth][task.name] = task.figures(answers[depth])
        core_calls += sums.core_calls
        num_batches += sums.batches
    conditions = Conditions(
        split="-".join(specs),
        tokenizer=tokenizer_facts(tokenizer),
        dtype=settings.dtype,
        device=device_name(device),
        batch=config.batch,
        read_as=settings.read_as,
    )
    return Result(
        origin=origin,
        conditions=conditions,
        trained=trained,
        core_calls=core_calls,
        batches=num_batches,
        passes=format_passes(model, depths, **reading),
        depths=[build_row(depth, trained, figures[depth]) for depth in depths],
        notes=_notes(model, settings, tasks, window),
        tasks={task.name: task.describe(specs[task.name], window) for task in tasks},
    )


def _build_task(name: str, spec: Spec, tokenizer: Tokenizer, window: int | None) -> ChoiceTask:
    task: Task = spec.build()
    all_requests = list(task.requests())
    requests = [request for request in all_requests if isinstance(request, Choose)]
    assert len(requests) == len(all_requests), f"task {name} is registered with chooses=True, and has other requests"
    pairs = list(dict.fromkeys(option for request in requests for option in request.options))
    encoded = encode_continuations(tokenizer, pairs, window)
    return ChoiceTask(name, task, requests, dict(zip(pairs, encoded, strict=True)))


def _notes(
    model: LoopedModel, settings: EvaluationSettings, tasks: Sequence[ChoiceTask], window: int | None
) -> list[str]:
    notes = [] if model.depth_free else [passes_note(settings.read_as)]
    for task in tasks:
        if truncated := sum(option.num_dropped > 0 for option in task.options.values()):
            notes.append(
                f"{truncated} of {plural(len(task.options), 'option')} of {task.name} do not fit the window of "
                f"{plural(window or 0, 'token')} with their prompt, which loses its start: the accuracy is not that of "
                "whole prompts"
            )
    return notes
