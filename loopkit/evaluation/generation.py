"""Texts for the tasks that ask for them: generated at each depth, kept as soon as they exist, marked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

import torch

from loopkit.components.task import Completion, Generate, Task
from loopkit.components.tokenizer import Tokenizer
from loopkit.evaluation.circumstances import Dtype
from loopkit.evaluation.completion_file import CompletionFile, completion_digest
from loopkit.inference import Completed, complete, positions_of
from loopkit.inference.complete import encode_prompts
from loopkit.registry import Spec

if TYPE_CHECKING:
    from loopkit.model import LoopedModel

Writing = Callable[[str, int, int, int], None]
"""Told a task, a depth, how many of its texts there are, and how many there will be."""


@dataclass(frozen=True)
class Asked:
    """A task with its requests, and how many tokens each prompt has."""

    name: str
    task: Task
    requests: Sequence[Generate]
    lengths: Sequence[int]


def ask(tasks: Mapping[str, Task], tokenizer: Tokenizer, model: LoopedModel) -> list[Asked]:
    """The requests of tasks that want texts, after a look at whether the model can answer them.

    Raises:
        ValueError: If a prompt does not fit the model's positions, naming how many there are and their length.
    """
    found = []
    limit = positions_of(model)
    for name, task in tasks.items():
        requests = list(task.requests())
        assert all(isinstance(request, Generate) for request in requests), f"task {name} asks for likelihood"
        prompts = [request.prompt for request in requests if isinstance(request, Generate)]
        lengths = [len(ids) for ids in encode_prompts(tokenizer, prompts)]
        if limit is not None and (long := [length for length in lengths if length >= limit]):
            raise ValueError(
                f"task {name}: {len(long)} of {len(lengths)} prompts do not fit: the longest has {max(lengths)} "
                f"tokens, and the model has {limit} positions, the answer's included; train with a longer data.length "
                "or with a model.position that does not end"
            )
        found.append(Asked(name, task, requests, lengths))  # type: ignore[arg-type]
    return found


@dataclass(frozen=True)
class Writer:
    """Generates what is asked and not yet in the file.

    Args:
        model: In evaluation mode, in the arithmetic wanted.
        tokenizer: Its tokenizer.
        dtype: The arithmetic, as results name it.
        batch: Sequences in a batch.
        file: What is known, and where texts go.
        writing: Told about each text.
    """

    model: LoopedModel
    tokenizer: Tokenizer
    dtype: Dtype
    batch: int
    file: CompletionFile
    writing: Writing = lambda task, depth, done, wanted: None

    def figures(self, asked: Sequence[Asked], depths: Sequence[int]) -> dict[int, dict[str, dict[str, float]]]:
        """The figures of every task at every depth."""
        same = {
            "model": model_digest(self.model),
            "tokenizer": self.tokenizer.fingerprint(),
            "dtype": self.dtype,
            "device": next(self.model.parameters()).device.type,
        }
        found: dict[int, dict[str, dict[str, float]]] = {depth: {} for depth in depths}
        for item in asked:
            for depth in depths:
                texts = self._texts(item, depth, same)
                marks = [item.task.mark(request, texts[request.key]) for request in item.requests]
                found[depth][item.name] = item.task.total(marks)
        return found

    def _texts(self, asked: Asked, depth: int, same: Mapping[str, Any]) -> dict[str, Completion]:
        """All texts of a task at a depth; sequences of similar length share a batch, the longest first."""
        digests = {request.key: completion_digest({**same, **_of(request)}) for request in asked.requests}
        texts: dict[str, Completion] = {}
        for key, digest in digests.items():
            known = self.file.get(asked.name, key, depth, digest)
            if known is not None:
                texts[key] = known
        self.writing(asked.name, depth, len(texts), len(asked.requests))
        missing = [i for i, request in enumerate(asked.requests) if request.key not in texts]
        missing.sort(key=lambda i: -asked.lengths[i])
        for first in range(0, len(missing), self.batch):
            group = [asked.requests[i] for i in missing[first : first + self.batch]]

            def keep(number: int, completed: Completed, group: list[Generate] = group) -> None:
                key = group[number].key
                texts[key] = Completion(completed.text, completed.num_tokens, completed.finished)
                self.file.add(asked.name, key, depth, digests[key], texts[key])
                self.writing(asked.name, depth, len(texts), len(asked.requests))

            self._complete(group, depth, keep)
        return texts

    def _complete(self, group: Sequence[Generate], depth: int, keep: Callable[[int, Completed], None]) -> None:
        """Have texts written; requests that stop at different strings are no batch."""
        for stop in dict.fromkeys(request.stop for request in group):
            numbers = [number for number, request in enumerate(group) if request.stop == stop]
            complete(
                self.model,
                self.tokenizer,
                [group[number].prompt for number in numbers],
                depth=depth,
                max_tokens=[group[number].max_tokens for number in numbers],
                stop=stop,
                done=lambda row, completed, numbers=numbers: keep(numbers[row], completed),  # type: ignore[misc]
            )


def _of(request: Generate) -> dict[str, Any]:
    return {"prompt": request.prompt, "max_tokens": request.max_tokens, "stop": request.stop}


def model_digest(model: LoopedModel) -> str:
    """Digest of a model: its parts and every bit of its weights."""
    digest = hashlib.sha256(json.dumps(_plain(model.section), sort_keys=True).encode())
    for name, value in model.state_dict().items():
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy())
    return digest.hexdigest()


def _plain(value: Any) -> Any:
    """A section of a recipe as plain values; where its components' files lie does not count."""
    if isinstance(value, Spec):
        return value.plain()
    if is_dataclass(value):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    return value
