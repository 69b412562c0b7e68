"""A model measured on a split at every depth asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import torch

from loopkit.components.probe import Probe, ProbeResult
from loopkit.components.task import Corpus, Likelihood, Task
from loopkit.errors import UserError
from loopkit.evaluation.batches import Batches
from loopkit.evaluation.completion_file import CompletionFile
from loopkit.evaluation.context import Dtype, device_name, ready, split_of, tokenizer_facts
from loopkit.evaluation.depth_sweep import DepthSweep, ReadAs, passes_note, spell_passes, sweep
from loopkit.evaluation.figures import merged, probe_figures, task_figures
from loopkit.evaluation.result import Conditions, ModelSource, Result, TrainedDepths, row_of
from loopkit.evaluation.shards import ALONE, EvaluationShard
from loopkit.evaluation.texts import Writing, evaluate_texts, joined
from loopkit.evaluation.timing import tokens_per_s
from loopkit.recipe.depths import check_depths, parse_depths

if TYPE_CHECKING:
    from pathlib import Path

    from loopkit.components.tokenizer import Tokenizer
    from loopkit.data import Prepared, Scoring, Split
    from loopkit.model import LoopedModel
    from loopkit.recipe.format import EvaluateConfig


def evaluate(
    model: LoopedModel,
    prepared: Prepared | None,
    settings: EvaluateConfig,
    depths: Sequence[int] | None = None,
    *,
    tokenizer: Tokenizer | None = None,
    length: int | None = None,
    split: Literal["validation", "test", "train"] | None = None,
    batch: int | None = None,
    device: torch.device | str | None = None,
    dtype: Dtype = "fp32",
    read_as: ReadAs = "depth",
    trained: TrainedDepths | None = None,
    origin: ModelSource | None = None,
    timed_batches: int = 0,
    progress: Callable[[int, int], None] = lambda done, batches: None,
    completions: Path | None = None,
    writing: Writing = lambda task, depth, done, wanted: None,
    shard: EvaluationShard = ALONE,
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
        shard: This rank's part of the work; every rank of it calls this, and each receives the whole result, but for
            what the first one alone does: timing, and keeping texts.

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
        raise UserError("evaluate.tasks and evaluate.probes are both empty; ask for evaluate.tasks.perplexity")
    asked = _Asked(
        model=model,
        settings=settings,
        tasks={name: spec.build() for name, spec in settings.tasks.items() if spec.target.scores},  # type: ignore[attr-defined]
        depths=depths,
        place=next(model.parameters()).device if device is None else torch.device(device),
        dtype=dtype,
        read_as=read_as,
        trained=trained,
        origin=ModelSource() if origin is None else origin,
        timed_batches=timed_batches,
    )
    texts = None
    if len(asked.tasks) < len(settings.tasks):
        known = prepared.tokenizer if prepared is not None and tokenizer is None else tokenizer
        texts = _written(asked, known, completions, writing, shard)
        if not scores_text(settings) and not timed_batches:
            return texts
    if prepared is None:
        raise UserError("there is no text to score; give prepared, or ask for no task, probe or timing that needs it")
    scored = _scored(asked, prepared, model.max_length if length is None else length, progress, shard)
    return scored if texts is None else joined(scored, texts)


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What is measured, at which depths, where and how; the names are those of ``evaluate``."""

    model: LoopedModel
    settings: EvaluateConfig
    tasks: dict[str, Task]
    depths: list[int]
    place: torch.device
    dtype: Dtype
    read_as: ReadAs
    trained: TrainedDepths | None
    origin: ModelSource
    timed_batches: int

    @property
    def reading(self) -> dict[str, Any]:
        """How loops that are not the last are read."""
        return {"read_as": self.read_as, "trained": self.model.max_loops if self.trained is None else self.trained.max}


def _written(
    asked: _Asked, tokenizer: Tokenizer | None, completions: Path | None, writing: Writing, shard: EvaluationShard
) -> Result:
    """The tasks that have texts written."""
    if tokenizer is None:
        raise UserError("texts cannot be written without the model's tokenizer; give tokenizer, or prepared")
    return evaluate_texts(
        asked.model,
        tokenizer,
        asked.settings,
        asked.depths,
        asked.place,
        dtype=asked.dtype,
        trained=asked.trained,
        origin=asked.origin,
        file=CompletionFile(None if shard.rank else completions),
        writing=writing,
        shard=ALONE if shard.in_step else shard,  # the length of a text decides how many passes it takes
    )


def _scored(
    asked: _Asked, prepared: Prepared, window: int, progress: Callable[[int, int], None], shard: EvaluationShard
) -> Result:
    """The tasks that score the split, the probes and the timing."""
    settings, model = asked.settings, asked.model
    text = split_of(prepared, settings.split)
    scoring = text.scoring(window, settings.stride, settings.protocol, settings.max_tokens)
    outcome = _measured(asked, scoring, progress, shard)
    tables = [item.tables for item in outcome.measured.values()]
    return Result(
        origin=asked.origin,
        conditions=_conditions(asked, prepared, text, scoring, window),
        trained=asked.trained,
        core_calls=outcome.found.core_calls,
        batches=outcome.found.batches,
        passes=spell_passes(model, asked.depths, **asked.reading),
        depths=[row_of(depth, asked.trained, outcome.figures(depth)) for depth in asked.depths],
        tables=merged(tables, list(outcome.measured), "table"),
        units=outcome.units(asked.timed_batches),
        notes=_notes(model, asked.read_as, text, scoring),
    )


def _measured(
    asked: _Asked, scoring: Scoring, progress: Callable[[int, int], None], shard: EvaluationShard
) -> _Outcome:
    """One sweep over the batches, on which passive probes ride; then the active probes, then the timing."""
    model, depths, reading = asked.model, asked.depths, asked.reading
    probes: dict[str, Probe] = {name: spec.build() for name, spec in asked.settings.probes.items()}
    batches = Batches(scoring, asked.settings.batch, asked.place)
    requests = [request for task in asked.tasks.values() for request in task.requests()]
    corpora = [request for request in requests if isinstance(request, Corpus)]
    with ready(model, asked.place, asked.dtype):
        found = sweep(
            model,
            shard.own(batches),
            depths,
            greedy=any(corpus.greedy for corpus in corpora),
            by_example=any(corpus.by_example for corpus in corpora),
            probes=list(probes.values()),
            progress=lambda done: progress(done, len(batches)),
            **reading,
        )
        if company := shard.missing(len(batches)):
            sweep(model, islice(batches, company), depths, **reading)
        found = shard.joined(found, list(probes.values()), depths)
        for probe in probes.values():
            probe.run(model, batches, depths)
        # two ranks would slow each other down
        timed = [] if shard.rank else list(islice(batches, asked.timed_batches))
        speed = tokens_per_s(model, timed, depths, **reading) if timed else {}
    assert found.tokens == scoring.tokens_scored, f"{found.tokens} tokens scored, {scoring.tokens_scored} announced"
    return _Outcome(asked.tasks, scoring, found, {name: probe.result() for name, probe in probes.items()}, speed)


def _conditions(asked: _Asked, prepared: Prepared, text: Split, scoring: Scoring, window: int) -> Conditions:
    """What two results must have in common to be compared."""
    settings = asked.settings
    return Conditions(
        split=text.name,
        slice=scoring.statement,
        data=text.report.fingerprint,
        tokenizer=tokenizer_facts(prepared.tokenizer),
        dtype=asked.dtype,
        device=device_name(asked.place),
        protocol=settings.protocol,
        window=window,
        stride=_stride(settings, window),
        batch=settings.batch,
        read_as=asked.read_as,
        tokens_scored=scoring.tokens_scored,
        words=scoring.words,
        bytes=scoring.bytes,
    )


def scores_text(settings: EvaluateConfig) -> bool:
    """Whether anything asked for scores the split, so that its data is needed."""
    return bool(settings.probes) or any(spec.target.scores for spec in settings.tasks.values())  # type: ignore[attr-defined]


@dataclass(frozen=True)
class _Outcome:
    """Everything measured, before it is put in rows."""

    tasks: dict[str, Task]
    scoring: Scoring
    found: DepthSweep
    measured: dict[str, ProbeResult]
    speed: dict[int, float]

    def figures(self, depth: int) -> dict[str, Any]:
        """All figures of one depth, in the order tasks, speed, probes."""
        scoring = self.scoring
        cost = Likelihood(self.found.nll[depth], self.found.tokens, scoring.words, scoring.bytes)
        if (greedy := self.found.greedy) is not None:
            cost = replace(cost, sequences=greedy.sequences, right=greedy.right[depth], exact=greedy.exact[depth])
        by_example = self.found.by_example
        examples = [] if by_example is None else by_example.answers(depth, self.scoring.groups)
        speed = {"tokens_per_s": self.speed[depth]} if depth in self.speed else {}
        probed = probe_figures([item.by_depth for item in self.measured.values()], list(self.measured), depth)
        parts = [task_figures(self.tasks, cost, examples), speed, probed]
        return merged(parts, ["a task", "the timing", "a probe"], "figure")

    def units(self, timed_batches: int) -> dict[str, str]:
        """Definitions and units of everything that is not self-explaining."""
        probed = merged([item.units for item in self.measured.values()], list(self.measured), "unit")
        if self.scoring.words_are is not None:
            probed["words"] = self.scoring.words_are
        if self.speed:
            what = f"each depth run alone and scored on {timed_batches} batches, median of 3, no cache"
            probed["tokens_per_s"] = f"tokens per second, {what}"
        return probed


def default_depths(settings: EvaluateConfig, trained: TrainedDepths | None, max_loops: int) -> list[int]:
    """The depths that a recipe asks for, or from 1 to the most that were trained."""
    if settings.depths is not None:
        return parse_depths(str(settings.depths))
    return list(range(1, (max_loops if trained is None else trained.max) + 1))


def _stride(settings: EvaluateConfig, window: int) -> int:
    """The stride in force, as the recipe format defines its default."""
    if settings.stride is not None:
        return settings.stride
    return window if settings.protocol == "non_overlapping" else max(window // 2, 1)


def _notes(model: LoopedModel, read_as: ReadAs, text: Split, scoring: Scoring) -> list[str]:
    notes = []
    if not model.depth_free:
        notes.append(passes_note(read_as))
    if scoring.bytes is not None and text.report.lost_rate > 0:
        notes.append(
            f"{text.report.lost_rate:.2%} of the characters do not come back from the tokenizer, which leaves them out "
            "or changes them, and are not paid for in full: bits_per_byte and word_ppl are too low, and compare only "
            "with those of runs that lose the same"
        )
    return notes
