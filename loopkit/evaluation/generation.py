"""Texts for the tasks that ask for them: generated at each depth, kept as soon as they exist, marked."""

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
from loopkit.evaluation.completion_file import CompletionFile, completion_digest
from loopkit.evaluation.context import Dtype
from loopkit.evaluation.figures import totals
from loopkit.evaluation.shards import ALONE, EvaluationShard
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
            raise UserError(
                f"task {name}: {len(long)} of {len(lengths)} prompts do not fit: the longest has {max(lengths)} "
                f"tokens, and the model has {limit} positions, the answer's included; train with a longer data.length "
                "or with a model.position that does not end"
            )
        found.append(Asked(name, task, requests, lengths))  # type: ignore[arg-type]
    return found


@dataclass(frozen=True)
class Writer:
    """Generates what is asked and not yet in the file.

    Ranks take turns with the batches, which are those of one rank alone, and tell each other their texts after each
    round. The first rank keeps and marks them.

    Args:
        model: In evaluation mode, in the arithmetic wanted.
        tokenizer: Its tokenizer.
        dtype: The arithmetic, as results name it.
        batch: Sequences in a batch.
        file: What is known, and where texts go; that of the first rank counts.
        writing: Told about each text.
        shard: Which rank this is.
    """

    model: LoopedModel
    tokenizer: Tokenizer
    dtype: Dtype
    batch: int
    file: CompletionFile
    writing: Writing = lambda task, depth, done, wanted: None
    shard: EvaluationShard = ALONE

    def figures(self, asked: Sequence[Asked], depths: Sequence[int]) -> dict[int, dict[str, dict[str, Any]]]:
        """The figures of every task at every depth."""
        same = {
            "model": model_digest(self.model),
            "tokenizer": self.tokenizer.fingerprint(),
            "dtype": self.dtype,
            "device": next(self.model.parameters()).device.type,
        }
        found: dict[int, dict[str, dict[str, Any]]] = {depth: {} for depth in depths}
        for item in asked:
            for depth in depths:
                texts = self._texts(item, depth, same)
                found[depth][item.name] = self.shard.pooled({} if self.shard.rank else _total(item, texts))
        return found

    def _texts(self, asked: Asked, depth: int, same: Mapping[str, Any]) -> dict[str, Completion]:
        """All texts of a task at a depth; sequences of similar length share a batch, the longest first."""
        digests = {request.key: completion_digest({**same, **_of(request)}) for request in asked.requests}
        known = {key: self.file.get(asked.name, key, depth, digest) for key, digest in digests.items()}
        texts = self._of_all({key: text for key, text in known.items() if text is not None and not self.shard.rank})
        self.writing(asked.name, depth, len(texts), len(asked.requests))

        def keep(found: Mapping[str, Completion]) -> None:
            for key, text in found.items():
                if key in texts:
                    continue
                texts[key] = text
                self.file.add(asked.name, key, depth, digests[key], text)
                self.writing(asked.name, depth, len(texts), len(asked.requests))

        missing = [i for i, request in enumerate(asked.requests) if request.key not in texts]
        missing.sort(key=lambda i: -asked.lengths[i])
        groups = [missing[first : first + self.batch] for first in range(0, len(missing), self.batch)]
        for first in range(0, len(groups), self.shard.world):
            mine = [asked.requests[i] for group in self.shard.own(groups[first:][: self.shard.world]) for i in group]
            keep(self._of_all(self._written(mine, depth, keep)))
        return texts

    def _of_all(self, own: Mapping[str, Completion]) -> dict[str, Completion]:
        """The texts of every rank, by key."""
        pooled = self.shard.pooled({key: asdict(text) for key, text in own.items()})
        return {key: Completion(**text) for key, text in pooled.items()}

    def _written(
        self, group: Sequence[Generate], depth: int, keep: Callable[[Mapping[str, Completion]], None]
    ) -> dict[str, Completion]:
        """Have a batch written; each text is kept as soon as it exists."""
        found: dict[str, Completion] = {}

        def done(number: int, completed: Completed) -> None:
            key = group[number].key
            found[key] = Completion(completed.text, completed.num_tokens, completed.finished)
            keep({key: found[key]})

        self._complete(group, depth, done)
        return found

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


def _total(asked: Asked, texts: Mapping[str, Completion]) -> dict[str, Any]:
    """The figures of a task, from all of its texts and from those of each group."""
    task, pairs = asked.task, [(request, texts[request.key]) for request in asked.requests]
    return totals(task, [(task.group(*pair), task.mark(*pair)) for pair in pairs])


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
