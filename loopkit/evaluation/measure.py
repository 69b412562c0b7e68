"""A model measured on a split at every depth asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import torch

from loopkit.components.probe import Measured, Probe
from loopkit.components.task import Corpus, Likelihood, Task
from loopkit.evaluation.batches import Batches
from loopkit.evaluation.circumstances import Dtype, device_name, ready, split_of, tokenizer_facts
from loopkit.evaluation.completion_file import CompletionFile
from loopkit.evaluation.figures import merged, probe_figures, task_figures
from loopkit.evaluation.result import Conditions, Origin, Result, Trained, row_of
from loopkit.evaluation.shards import ALONE, Shard
from loopkit.evaluation.sweep import ReadAs, Sweep, sweep
from loopkit.evaluation.texts import Writing, evaluate_texts, joined
from loopkit.evaluation.timing import tokens_per_s
from loopkit.recipe.depths import check_depths, parse_depths

if TYPE_CHECKING:
    from pathlib import Path

    from loopkit.components.tokenizer import Tokenizer
    from loopkit.data import Prepared, Scoring, Split
    from loopkit.model import LoopedModel
    from loopkit.recipe.format import Evaluate


def evaluate(
    model: LoopedModel,
    prepared: Prepared | None,
    settings: Evaluate,
    depths: Sequence[int] | None = None,
    *,
    tokenizer: Tokenizer | None = None,
    length: int | None = None,
    split: Literal["validation", "test", "train"] | None = None,
    batch: int | None = None,
    device: torch.device | str | None = None,
    dtype: Dtype = "fp32",
    read_as: ReadAs = "depth",
    trained: Trained | None = None,
    origin: Origin | None = None,
    timed_batches: int = 0,
    progress: Callable[[int, int], None] = lambda done, batches: None,
    completions: Path | None = None,
    writing: Writing = lambda task, depth, done, wanted: None,
    shard: Shard = ALONE,
) -> Result:
    """Score a split at every depth, from one pass where the model allows it, run the probes, and have texts written.

    The model is put into evaluation mode and given back in the mode it had; no random state is touched. The same call
    twice gives the same bits on the CPU.

    Args:
        model: The model.
        prepared: Tokenizer and encoded splits; ``None`` will do where nothing is scored (see ``scores_text``).
        settings: The recipe's ``evaluate`` section.
        depths: In loops; ``None``: those of the settings, or from 1 to the most trained.
        tokenizer: The model's, where ``prepared`` does not tell it.
        length: Inputs of a window; ``None``: as many as the model takes.
        split: Instead of the settings' split.
        batch: Instead of the settings' windows per forward pass.
        device: Where the model is moved before it runs; ``None``: it stays where it is.
        dtype: ``fp32``, or ``bf16_autocast`` for matrix products in bf16.
        read_as: ``depth`` reads loop k as the last one of a run of k; ``trained`` as a run of the most trained loops
            reads it.
        trained: Depths of training; ``None``: unknown, and then no depth is marked.
        origin: Where the model came from.
        timed_batches: Batches on which each depth is also run alone and timed; 0 leaves ``tokens_per_s`` out.
        progress: Called with the batches done and their number.
        completions: File that keeps the texts of the tasks that ask for some, each as soon as it exists; an evaluation
            that was interrupted goes on from it. ``None`` keeps none.
        writing: Told a task, a depth, how many of its texts there are and how many there will be.
        shard: This rank's part of the work; every rank of it calls this, and each receives the whole result.

    Raises:
        ValueError: If a depth cannot be run, the split is not there or holds nothing to score, there is nothing to
            measure, or two tasks or probes use one name for different figures.
    """
    settings = replace(
        settings,
        split=settings.split if split is None else split,
        batch=settings.batch if batch is None else batch,
    )
    depths = sorted(default_depths(settings, trained, model.max_loops) if depths is None else depths)
    check_depths(depths, model.max_depth)
    if not settings.tasks and not settings.probes:
        raise ValueError("evaluate.tasks and evaluate.probes are both empty; ask for evaluate.tasks.perplexity")
    place = next(model.parameters()).device if device is None else torch.device(device)
    origin = Origin() if origin is None else origin
    tasks: dict[str, Task] = {name: spec.build() for name, spec in settings.tasks.items() if spec.target.scores}  # type: ignore[attr-defined]
    texts = None
    if len(tasks) < len(settings.tasks):
        known = prepared.tokenizer if prepared is not None and tokenizer is None else tokenizer
        if known is None:
            raise ValueError("texts cannot be written without the model's tokenizer; give tokenizer, or prepared")
        file = CompletionFile(completions)
        texts = evaluate_texts(
            model,
            known,
            settings,
            depths,
            place,
            dtype=dtype,
            trained=trained,
            origin=origin,
            file=file,
            writing=writing,
        )
        if not scores_text(settings) and not timed_batches:
            return texts
    if prepared is None:
        raise ValueError("there is no text to score; give prepared, or ask for no task, probe or timing that needs it")
    probes: dict[str, Probe] = {name: spec.build() for name, spec in settings.probes.items()}
    text = split_of(prepared, settings.split)
    window = model.max_length if length is None else length
    scoring = text.scoring(window, settings.stride, settings.protocol, settings.max_tokens)
    batches = Batches(scoring, settings.batch, place)
    most = model.max_loops if trained is None else trained.max
    with ready(model, place, dtype):
        found = sweep(
            model,
            shard.own(batches),
            depths,
            read_as=read_as,
            trained=most,
            greedy=any(isinstance(r, Corpus) and r.greedy for task in tasks.values() for r in task.requests()),
            probes=list(probes.values()),
            progress=lambda done: progress(done, len(batches)),
        )
        if company := shard.missing(len(batches)):
            sweep(model, islice(batches, company), depths, read_as=read_as, trained=most)
        found = shard.joined(found, list(probes.values()), depths)
        for probe in probes.values():
            probe.run(model, batches, depths)
        timed = list(islice(batches, timed_batches))
        speed = tokens_per_s(model, timed, depths, read_as=read_as, trained=most) if timed else {}
    assert found.tokens == scoring.tokens_scored, f"{found.tokens} tokens scored, {scoring.tokens_scored} announced"
    outcome = _Outcome(tasks, scoring, found, {name: probe.result() for name, probe in probes.items()}, speed)
    conditions = Conditions(
        split=text.name,
        slice=scoring.statement,
        data=text.report.fingerprint,
        tokenizer=tokenizer_facts(prepared.tokenizer),
        dtype=dtype,
        device=device_name(place),
        protocol=settings.protocol,
        window=window,
        stride=_stride(settings, window),
        batch=settings.batch,
        read_as=read_as,
        tokens_scored=scoring.tokens_scored,
        words=scoring.words,
        bytes=scoring.bytes,
    )
    scored = Result(
        origin=origin,
        conditions=conditions,
        trained=trained,
        core_calls=found.core_calls,
        batches=found.batches,
        passes="one" if model.depth_free else "one per depth",
        depths=[row_of(depth, trained, outcome.figures(depth)) for depth in depths],
        tables=merged([item.tables for item in outcome.measured.values()], list(probes), "table"),
        units=outcome.units(timed_batches),
        notes=_notes(model, text, scoring),
    )
    return scored if texts is None else joined(scored, texts)


def scores_text(settings: Evaluate) -> bool:
    """Whether anything asked for scores the split, so that its data is needed."""
    return bool(settings.probes) or any(spec.target.scores for spec in settings.tasks.values())  # type: ignore[attr-defined]


@dataclass(frozen=True)
class _Outcome:
    """Everything measured, before it is put in rows."""

    tasks: dict[str, Task]
    scoring: Scoring
    found: Sweep
    measured: dict[str, Measured]
    speed: dict[int, float]

    def figures(self, depth: int) -> dict[str, Any]:
        """All figures of one depth, in the order tasks, speed, probes."""
        scoring = self.scoring
        cost = Likelihood(self.found.nll[depth], self.found.tokens, scoring.words, scoring.bytes)
        if (greedy := self.found.greedy) is not None:
            cost = replace(cost, sequences=greedy.sequences, right=greedy.right[depth], exact=greedy.exact[depth])
        speed = {"tokens_per_s": self.speed[depth]} if depth in self.speed else {}
        probed = probe_figures([item.by_depth for item in self.measured.values()], list(self.measured), depth)
        parts = [task_figures(self.tasks, cost), speed, probed]
        return merged(parts, ["a task", "the timing", "a probe"], "figure")

    def units(self, timed_batches: int) -> dict[str, str]:
        """Definitions and units of everything that is not self-explaining."""
        probed = merged([item.units for item in self.measured.values()], list(self.measured), "unit")
        if self.speed:
            what = f"each depth run alone and scored on {timed_batches} batches, median of 3, no cache"
            probed["tokens_per_s"] = f"tokens per second, {what}"
        return probed


def default_depths(settings: Evaluate, trained: Trained | None, max_loops: int) -> list[int]:
    """The depths that a recipe asks for, or from 1 to the most that were trained."""
    if settings.depths is not None:
        return parse_depths(str(settings.depths))
    return list(range(1, (max_loops if trained is None else trained.max) + 1))


def _stride(settings: Evaluate, window: int) -> int:
    """The stride in force, as the recipe format defines its default."""
    if settings.stride is not None:
        return settings.stride
    return window if settings.protocol == "once" else max(window // 2, 1)


def _notes(model: LoopedModel, text: Split, scoring: Scoring) -> list[str]:
    notes = []
    if not model.depth_free:
        notes.append("a component of this model depends on the number of loops run, so each depth is a pass of its own")
    if scoring.bytes is not None and text.report.lost_rate > 0:
        notes.append(
            f"{text.report.lost_rate:.2%} of the characters are unknown to the tokenizer or dropped by it, and not "
            "paid for in full: figures per word and byte compare only with those of runs that lose the same"
        )
    return notes
