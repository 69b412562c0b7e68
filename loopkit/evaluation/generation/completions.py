"""Completions for tasks: generated at each depth, stored as soon as they exist, and marked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

import torch

from loopkit.components.task import Completion, Generate, Task
from loopkit.components.tokenizer import Tokenizer
from loopkit.errors import UserError
from loopkit.evaluation.context import Dtype
from loopkit.evaluation.figures import compute_totals
from loopkit.evaluation.generation.completion_file import CompletionFile, completion_digest
from loopkit.evaluation.shards import ALONE, EvaluationShard
from loopkit.inference import Completed, complete, max_positions
from loopkit.inference.complete import encode_prompts
from loopkit.plural import plural
from loopkit.registry import Spec

if TYPE_CHECKING:
    from loopkit.model import LoopedModel

CompletionProgress = Callable[[str, int, int, int], None]
"""Called with a task, a depth, its number of completions so far, and their total."""


def ignore_progress(task: str, depth: int, done: int, total: int) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class GenerationTask:
    """A task with its requests, and the length of each prompt in tokens."""

    name: str
    task: Task
    requests: Sequence[Generate]
    lengths: Sequence[int]


def build_generation_tasks(tasks: Mapping[str, Task], tokenizer: Tokenizer, model: LoopedModel) -> list[GenerationTask]:
    """Collect the requests of tasks, and check that the model can answer them.

    Raises:
        UserError: If prompts are longer than the model's positions allow.
    """
    result = []
    limit = max_positions(model)
    for name, task in tasks.items():
        all_requests = list(task.requests())
        requests = [request for request in all_requests if isinstance(request, Generate)]
        assert len(requests) == len(all_requests), f"task {name} is registered with generates=True but scores text"
        lengths = [len(ids) for ids in encode_prompts(tokenizer, [request.prompt for request in requests])]
        if limit is not None and (too_long := [length for length in lengths if length >= limit]):
            raise UserError(
                f"task {name}: {len(too_long)} of {plural(len(lengths), 'prompt')} too long. The longest has "
                f"{plural(max(lengths), 'token')}, and the model has {limit} positions for prompt and completion. "
                "Train with a longer data.length, or with a model.position without a limit"
            )
        result.append(GenerationTask(name, task, requests, lengths))
    return result


@dataclass(frozen=True)
class CompletionGenerator:
    """Generates the completions that are not yet in the file.

    Ranks take batches in turns and exchange their completions after each round; a batch belongs to one rank. Rank 0
    stores and marks the completions.

    Args:
        model: In evaluation mode, under the autocast of ``dtype``.
        tokenizer: Its tokenizer.
        dtype: The arithmetic, as results name it.
        batch: Sequences per batch.
        file: Stored completions, to which new ones are added; the file of rank 0 counts.
        on_completion: Called after each completion.
        shard: This rank's part of the work.
    """

    model: LoopedModel
    tokenizer: Tokenizer
    dtype: Dtype
    batch: int
    file: CompletionFile
    on_completion: CompletionProgress = ignore_progress
    shard: EvaluationShard = ALONE

    def figures(self, tasks: Sequence[GenerationTask], depths: Sequence[int]) -> dict[int, dict[str, dict[str, Any]]]:
        """Return the figures of every task at every depth."""
        shared_settings = {
            "model": model_digest(self.model),
            "tokenizer": self.tokenizer.fingerprint(),
            "dtype": self.dtype,
            "device": next(self.model.parameters()).device.type,
        }
        result: dict[int, dict[str, dict[str, Any]]] = {depth: {} for depth in depths}
        for task in tasks:
            for depth in depths:
                completions = self._completions(task, depth, shared_settings)
                figures = {} if self.shard.rank else _compute_figures(task, completions)
                result[depth][task.name] = self.shard.gather(figures)
        return result

    def _completions(
        self, task: GenerationTask, depth: int, shared_settings: Mapping[str, Any]
    ) -> dict[str, Completion]:
        """Return all completions of a task at a depth; sequences of similar length share a batch, the longest first."""
        digests = {r.key: completion_digest({**shared_settings, **_request_settings(r)}) for r in task.requests}
        stored = {key: self.file.get(task.name, key, depth, digest) for key, digest in digests.items()}
        completions = self._gather({key: c for key, c in stored.items() if c is not None and not self.shard.rank})
        self.on_completion(task.name, depth, len(completions), len(task.requests))

        def store(new: Mapping[str, Completion]) -> None:
            for key, completion in new.items():
                if key in completions:
                    continue
                completions[key] = completion
                self.file.add(task.name, key, depth, digests[key], completion)
                self.on_completion(task.name, depth, len(completions), len(task.requests))

        missing = [i for i, request in enumerate(task.requests) if request.key not in completions]
        missing.sort(key=lambda i: -task.lengths[i])
        batches = [missing[first : first + self.batch] for first in range(0, len(missing), self.batch)]
        for first in range(0, len(batches), self.shard.world):
            own = [task.requests[i] for batch in self.shard.own(batches[first:][: self.shard.world]) for i in batch]
            store(self._gather(self._generate(own, depth, store)))
        return completions

    def _gather(self, own: Mapping[str, Completion]) -> dict[str, Completion]:
        """Return the completions of every rank, by key."""
        gathered = self.shard.gather({key: asdict(completion) for key, completion in own.items()})
        return {key: Completion(**completion) for key, completion in gathered.items()}

    def _generate(
        self, requests: Sequence[Generate], depth: int, store: Callable[[Mapping[str, Completion]], None]
    ) -> dict[str, Completion]:
        """Generate a batch and store each completion as soon as it exists; one pass per set of stop strings."""
        result: dict[str, Completion] = {}
        for stop in dict.fromkeys(request.stop for request in requests):
            group = [request for request in requests if request.stop == stop]

            def add(row: int, completed: Completed, group: Sequence[Generate] = group) -> None:
                key = group[row].key
                result[key] = Completion(completed.text, completed.num_tokens, completed.finished)
                store({key: result[key]})

            complete(
                self.model,
                self.tokenizer,
                [request.prompt for request in group],
                depth=depth,
                max_tokens=[request.max_tokens for request in group],
                stop=stop,
                done=add,
            )
        return result


def _compute_figures(task: GenerationTask, completions: Mapping[str, Completion]) -> dict[str, Any]:
    """Compute the figures of a task from all of its completions and from those of each group."""
    pairs = [(request, completions[request.key]) for request in task.requests]
    return compute_totals(task.task, [(task.task.group(*pair), task.task.mark(*pair)) for pair in pairs])


def _request_settings(request: Generate) -> dict[str, Any]:
    return {"prompt": request.prompt, "max_tokens": request.max_tokens, "stop": request.stop}


def model_digest(model: LoopedModel) -> str:
    """Return a digest of a model: its components and every bit of its weights."""
    digest = hashlib.sha256(json.dumps(_plain(model.section), sort_keys=True).encode())
    for name, value in model.state_dict().items():
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy())
    return digest.hexdigest()


def _plain(value: Any) -> Any:
    """Convert a recipe section to plain values, without the paths of its components' files."""
    if isinstance(value, Spec):
        return value.plain()
    if is_dataclass(value):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    return value
