"""Evaluation of a model on a split, at every requested depth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch

from loopkit.components.probe import Probe, ProbeResult
from loopkit.components.task import Corpus, Likelihood, Task
from loopkit.errors import UserError
from loopkit.evaluation.batches import Batches
from loopkit.evaluation.context import device_name, evaluation_mode, get_split, tokenizer_facts
from loopkit.evaluation.continuation.evaluate import evaluate_choices
from loopkit.evaluation.depth_sweep import DepthSweep, format_passes, passes_note, sweep
from loopkit.evaluation.figures import compute_task_figures, merge_maps, probe_figures
from loopkit.evaluation.generation.completion_file import CompletionFile
from loopkit.evaluation.generation.completions import CompletionProgress, ignore_progress
from loopkit.evaluation.generation.evaluate import evaluate_generation, merge_results
from loopkit.evaluation.result import Conditions, ModelSource, Result, TrainedDepths, build_row
from loopkit.evaluation.settings import EvaluationSettings, chooses, generates, reads_split, scores_text
from loopkit.evaluation.shards import ALONE, EvaluationShard
from loopkit.evaluation.timing import tokens_per_s
from loopkit.plural import plural
from loopkit.recipe.depths import check_depths, default_depths

if TYPE_CHECKING:
    from pathlib import Path

    from loopkit.components.tokenizer import Tokenizer
    from loopkit.data import Prepared, Scoring, Split
    from loopkit.model import LoopedModel
    from loopkit.recipe.format import EvaluateConfig


def evaluate(
    model: LoopedModel,
    prepared: Prepared | None,
    settings: EvaluationSettings,
    *,
    tokenizer: Tokenizer | None = None,
    trained: TrainedDepths | None = None,
    origin: ModelSource | None = None,
    completions: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, batches: None,
    on_completion: CompletionProgress = ignore_progress,
    shard: EvaluationShard = ALONE,
) -> Result:
    """Score a split at every depth, run the probes, compare options, and generate completions, as the tasks need.

    One pass serves all depths if the loop does not depend on the number of loops. The model runs in evaluation mode on
    its own device and then returns to its previous mode; no random state changes. Repeating the call gives the same
    bits on CPU.

    Args:
        model: The model.
        prepared: Tokenizer and encoded splits; ``None`` suffices if nothing is scored (see ``scores_text``).
        settings: What is measured, and how.
        tokenizer: The model's tokenizer; ``None``: the tokenizer of ``prepared``.
        trained: Depths of training; ``None``: unknown, and no depth is marked.
        origin: Where the model comes from.
        completions: File that stores generated completions, each as soon as it exists; an interrupted evaluation
            resumes from it. ``None`` stores none.
        progress: Called with the number of batches done and their total.
        on_completion: Called with a task, a depth, its number of completions so far, and their total.
        shard: This rank's part of the work. Every rank calls this function, and each receives the whole result except
            for timing, which rank 0 does.

    Raises:
        UserError: If a depth cannot be run, the split is missing or contains nothing to score, there is nothing to
            measure, or two tasks or probes use one name for different figures.
    """
    config = settings.config
    if not config.tasks and not config.probes:
        raise UserError(
            "evaluate.tasks and evaluate.probes are both empty: there is nothing to measure. "
            "Add a task, such as evaluate.tasks.perplexity"
        )
    deepest = model.max_loops if trained is None else trained.max
    depths = sorted(default_depths(config.depths, deepest) if settings.depths is None else settings.depths)
    check_depths(depths, model.max_depth)
    evaluation = _Evaluation(
        model=model,
        settings=settings,
        depths=depths,
        device=next(model.parameters()).device,
        trained=trained,
        origin=ModelSource() if origin is None else origin,
        shard=shard,
    )
    if tokenizer is None and prepared is not None:
        tokenizer = prepared.tokenizer
    parts = []
    if any(map(generates, config.tasks.values())):
        parts.append(evaluation.generate(tokenizer, completions, on_completion))
    if any(map(chooses, config.tasks.values())):
        parts.insert(0, evaluation.choose(tokenizer))
    if scores_text(config) or settings.timed_batches:
        if prepared is None:
            raise UserError(
                "tasks, probes and timing that score text need data, but prepared is None. "
                "Pass prepared, or remove evaluate.probes, timed_batches and the tasks that score text"
            )
        parts.insert(0, evaluation.score(prepared, progress))
    return reduce(merge_results, parts)


@dataclass(frozen=True, kw_only=True)
class _Evaluation:
    """An evaluation of one model: its settings with every default filled in."""

    model: LoopedModel
    settings: EvaluationSettings
    depths: list[int]
    device: torch.device
    trained: TrainedDepths | None
    origin: ModelSource
    shard: EvaluationShard

    @property
    def reading(self) -> dict[str, Any]:
        """The arguments of ``sweep`` that state how a loop before the last one is read."""
        trained = self.model.max_loops if self.trained is None else self.trained.max
        return {"read_as": self.settings.read_as, "trained": trained}

    def generate(
        self, tokenizer: Tokenizer | None, completions: Path | None, on_completion: CompletionProgress
    ) -> Result:
        """Evaluate the tasks that generate completions."""
        return evaluate_generation(
            self.model,
            _require(tokenizer),
            self.settings.config,
            self.depths,
            dtype=self.settings.dtype,
            trained=self.trained,
            origin=self.origin,
            file=CompletionFile(None if self.shard.rank else completions),
            on_completion=on_completion,
            # the number of passes depends on the length of a completion, so ranks in step cannot share them
            shard=ALONE if self.shard.in_step else self.shard,
        )

    def choose(self, tokenizer: Tokenizer | None) -> Result:
        """Evaluate the tasks that compare options."""
        return evaluate_choices(
            self.model,
            _require(tokenizer),
            self.settings,
            self.depths,
            reading=self.reading,
            trained=self.trained,
            origin=self.origin,
            shard=self.shard,
        )

    def score(self, prepared: Prepared, progress: Callable[[int, int], None]) -> Result:
        """Score the split, run the probes and time each depth."""
        config, model = self.settings.config, self.model
        window = model.max_length if self.settings.length is None else self.settings.length
        split = get_split(prepared, config.split)
        scoring = split.scoring(window, config.stride, config.protocol, config.max_tokens)
        measurements = self._measure(scoring, progress)
        tables = [probe.tables for probe in measurements.probes.values()]
        return Result(
            origin=self.origin,
            conditions=self._conditions(prepared, split, scoring, window),
            trained=self.trained,
            core_calls=measurements.sums.core_calls,
            batches=measurements.sums.batches,
            passes=format_passes(model, self.depths, **self.reading),
            depths=[build_row(depth, self.trained, measurements.figures(depth)) for depth in self.depths],
            tables=merge_maps(tables, list(measurements.probes), "table"),
            units=measurements.units(self.settings.timed_batches),
            notes=_notes(model, self.settings, split, scoring),
        )

    def _measure(self, scoring: Scoring, progress: Callable[[int, int], None]) -> _Measurements:
        """Sweep the batches with the passive probes, then run the active probes and the timing."""
        model, config, depths, shard = self.model, self.settings.config, self.depths, self.shard
        tasks: dict[str, Task] = {name: spec.build() for name, spec in config.tasks.items() if reads_split(spec)}
        probes: dict[str, Probe] = {name: spec.build() for name, spec in config.probes.items()}
        batches = Batches(scoring, config.batch, self.device)
        corpora = [r for task in tasks.values() for r in task.requests() if isinstance(r, Corpus)]
        with evaluation_mode(model, self.settings.dtype):
            sums = sweep(
                model,
                shard.own(batches),
                depths,
                greedy=any(corpus.greedy for corpus in corpora),
                by_example=any(corpus.by_example for corpus in corpora),
                probes=list(probes.values()),
                progress=lambda done: progress(done, len(batches)),
                **self.reading,
            )
            if num_dummy := shard.num_dummy_passes(len(batches)):
                sweep(model, islice(batches, num_dummy), depths, **self.reading)
            sums = shard.reduce(sums, list(probes.values()), depths)
            for probe in probes.values():
                probe.run(model, batches, depths)
            # ranks that time at once would slow each other down
            timed = [] if shard.rank else list(islice(batches, self.settings.timed_batches))
            throughput = tokens_per_s(model, timed, depths, **self.reading) if timed else {}
        assert sums.tokens == scoring.tokens_scored, f"{sums.tokens} tokens scored, {scoring.tokens_scored} expected"
        results = {name: probe.result() for name, probe in probes.items()}
        return _Measurements(tasks, scoring, sums, results, throughput)

    def _conditions(self, prepared: Prepared, split: Split, scoring: Scoring, window: int) -> Conditions:
        """What two results must share to be comparable."""
        config = self.settings.config
        return Conditions(
            split=split.name,
            slice=scoring.statement,
            data=split.report.fingerprint,
            tokenizer=tokenizer_facts(prepared.tokenizer),
            dtype=self.settings.dtype,
            device=device_name(self.device),
            protocol=config.protocol,
            window=window,
            stride=_stride(config, window),
            batch=config.batch,
            read_as=self.settings.read_as,
            tokens_scored=scoring.tokens_scored,
            words=scoring.words,
            bytes=scoring.bytes,
        )


@dataclass(frozen=True)
class _Measurements:
    """The sums, probe results and throughput from which the rows are built."""

    tasks: dict[str, Task]
    scoring: Scoring
    sums: DepthSweep
    probes: dict[str, ProbeResult]
    throughput: dict[int, float]

    def figures(self, depth: int) -> dict[str, Any]:
        """All figures of one depth, in the order tasks, throughput, probes."""
        scoring, sums = self.scoring, self.sums
        total = Likelihood(sums.nll[depth], sums.tokens, scoring.words, scoring.bytes)
        if (greedy := sums.greedy) is not None:
            total = replace(total, sequences=greedy.sequences, right=greedy.right[depth], exact=greedy.exact[depth])
        examples = [] if sums.by_example is None else sums.by_example.answers(depth, scoring.groups)
        throughput = {"tokens_per_s": self.throughput[depth]} if depth in self.throughput else {}
        probed = probe_figures([probe.by_depth for probe in self.probes.values()], list(self.probes), depth)
        parts = [compute_task_figures(self.tasks, total, examples), throughput, probed]
        return merge_maps(parts, ["a task", "the timing", "a probe"], "figure")

    def units(self, timed_batches: int) -> dict[str, str]:
        """Definitions and units of the figures that need one."""
        units = merge_maps([probe.units for probe in self.probes.values()], list(self.probes), "unit")
        if self.scoring.words_are is not None:
            units["words"] = self.scoring.words_are
        if self.throughput:
            what = f"each depth run alone and scored on {plural(timed_batches, 'batch')}, median of 3, no cache"
            units["tokens_per_s"] = f"tokens per second, {what}"
        return units


def _require(tokenizer: Tokenizer | None) -> Tokenizer:
    if tokenizer is None:
        raise UserError("a task with prompts needs the model's tokenizer; pass tokenizer or prepared")
    return tokenizer


def _stride(settings: EvaluateConfig, window: int) -> int:
    """The stride in force, as the recipe format defines its default."""
    if settings.stride is not None:
        return settings.stride
    return window if settings.protocol == "non_overlapping" else max(window // 2, 1)


def _notes(model: LoopedModel, settings: EvaluationSettings, split: Split, scoring: Scoring) -> list[str]:
    notes = []
    if not model.depth_free:
        notes.append(passes_note(settings.read_as))
    if scoring.bytes is not None and split.report.lost_rate > 0:
        notes.append(
            f"{split.report.lost_rate:.2%} of the characters do not survive the tokenizer, which drops or changes "
            "them, and are not fully scored: bits_per_byte and word_ppl are too low, and comparable only with those "
            "of runs that lose the same characters"
        )
    return notes
