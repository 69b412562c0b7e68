"""Evaluate a run and store the result in its folder, for ``loopkit eval`` and ``loopkit.evaluate``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loopkit.components.exit import Exit
from loopkit.data import Prepared, prepare
from loopkit.errors import file_errors
from loopkit.evaluation.context import Dtype
from loopkit.evaluation.depth_sweep import ReadAs
from loopkit.evaluation.early_exit.benchmark import exit_benchmark
from loopkit.evaluation.files import completions_of, write_result
from loopkit.evaluation.generation.completions import CompletionProgress, ignore_progress
from loopkit.evaluation.measure import evaluate, scores_text
from loopkit.evaluation.result import Result
from loopkit.evaluation.settings import EvaluationSettings, ExitBenchmarkSettings
from loopkit.evaluation.shards import ALONE, EvaluationShard
from loopkit.evaluation.trained_run import TrainedRun
from loopkit.recipe import component
from loopkit.registry.catalog import catalog
from loopkit.runs import write_json

OnResult = Callable[[Mapping[str, Any]], None]
"""Receives the record of a result before it is written, so that a failed write does not lose it."""


def evaluate_run(
    run: TrainedRun,
    depths: Sequence[int] | None = None,
    *,
    dtype: Dtype | None = None,
    read_as: ReadAs = "depth",
    timed_batches: int = 0,
    shard: EvaluationShard = ALONE,
    write: bool = True,
    on_result: OnResult = lambda record: None,
    on_completion: CompletionProgress = ignore_progress,
) -> tuple[Result, Path | None]:
    """Evaluate a run at every depth and write the result to its ``eval`` folder.

    Args:
        run: From ``open_run``; its recipe sets the data, the tasks and the probes.
        depths: In loops; ``None``: ``run.depths``.
        dtype: Arithmetic; ``None``: that of the recipe.
        read_as: ``depth`` reads loop k as the last of k loops, ``trained`` as training did.
        timed_batches: Number of batches that also time each depth separately.
        shard: This rank's part of the work. Every rank calls this function; only rank 0 reports and writes.
        write: Write the result and the generated completions; otherwise the folder does not change.
        on_result: Called with the result's record before it is written.
        on_completion: Called with a task, a depth, its number of completions so far, and their total.

    Returns:
        The result, and the file that contains it; ``None`` if this call did not write one.

    Raises:
        UserError: If a depth cannot be run, there is nothing to measure, or a file cannot be written.
    """
    settings = EvaluationSettings.from_recipe(
        run.recipe,
        depths=run.depths if depths is None else depths,
        dtype=dtype,
        read_as=read_as,
        timed_batches=timed_batches,
    )
    result = evaluate(
        run.model,
        _prepare(run) if timed_batches or scores_text(run.recipe.evaluate) else None,
        settings,
        tokenizer=run.tokenizer,
        trained=run.trained_as(read_as),
        origin=run.origin,
        completions=completions_of(run.folder, run.checkpoint.step, run.weights) if write else None,
        on_completion=on_completion,
        shard=shard,
    )
    if shard.rank:
        return result, None
    on_result(result.to_json())
    return result, write_result(result, run.folder) if write else None


def build_exit(run: TrainedRun, value: Any) -> Exit:
    """Build an early-exit rule.

    Args:
        run: Its plugin files are searched as well.
        value: A name, or a map with ``type`` and options.

    Raises:
        RecipeError: If the rule or an option does not exist.
    """
    components = catalog().with_files(Path(file) for file in run.recipe.values["plugins"])
    exit: Exit = component("exit", value, among=components).build()
    return exit


def benchmark_run(
    run: TrainedRun,
    names: Sequence[str],
    *,
    dtype: Dtype | None = None,
    read_as: ReadAs = "depth",
    write: bool = True,
    on_result: OnResult = lambda record: None,
) -> tuple[dict[str, Any], Path | None]:
    """Benchmark early-exit rules against every fixed depth and write the result to the run's ``exit`` folder.

    Args:
        run: From ``open_run``.
        names: Names of the rules, in the registry or in the plugin files of the run.
        dtype: Arithmetic; ``None``: that of the recipe.
        read_as: ``depth`` reads loop k as the last of k loops, ``trained`` as training did.
        write: Write the result; otherwise the folder does not change.
        on_result: Called with the result before it is written.

    Returns:
        The result, and the file that contains it; ``None`` if this call did not write one.

    Raises:
        UserError: If a rule does not exist or cannot exit on this model, or the file cannot be written.
    """
    exits = {name: build_exit(run, name) for name in names}
    result = exit_benchmark(
        run.model,
        _prepare(run),
        exits,
        ExitBenchmarkSettings.from_recipe(run.recipe, dtype=dtype, read_as=read_as),
        trained=run.trained_as(read_as),
        origin=run.origin,
    )
    on_result(result)
    if not write:
        return result, None
    prefix = "" if run.weights == "trained" else f"{run.weights}-"
    path = run.folder.path / "exit" / f"{prefix}{run.checkpoint.path.name}.json"
    with file_errors(path, "written"):
        path.parent.mkdir(exist_ok=True)
    write_json(path, result)
    return result, path


def _prepare(run: TrainedRun) -> Prepared:
    """Return the evaluated split, encoded."""
    return prepare(run.recipe.data, splits=(run.recipe.evaluate.split,), tokenizer=run.tokenizer)
