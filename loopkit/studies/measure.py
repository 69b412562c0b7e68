"""Measurements of a study's runs, cached in each run's folder."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from loopkit.recipe.identity import value_digest
from loopkit.runs import write_json
from loopkit.studies.runs import PlannedRun, Say
from loopkit.studies.study import LoadedStudy

Json = dict[str, Any]


def load_or_measure(study: LoadedStudy, run: PlannedRun, exit_sequences: int, say: Say) -> Json:
    """Return the evaluation of a run, and its early-exit benchmark if the study has exits.

    Args:
        study: Defines depths, probes and exits.
        run: A finished run.
        exit_sequences: Sequences for each half of the benchmark.
        say: Called with a message before a measurement.
    """
    options = {
        "depths": study.depths,
        "probes": {name: spec.plain() for name, spec in study.probes.items()},
        "exits": {name: spec.plain() for name, spec in study.exits.items()},
        "exit_sequences": exit_sequences,
    }
    path = run.folder.path / "study" / f"{study.name}-{value_digest(options)}.json"
    if not path.is_file():
        say(f"measuring {run.folder.name}")
        path.parent.mkdir(exist_ok=True)
        write_json(path, {"asked": options, **_measure(study, run, exit_sequences)})
    result: Json = json.loads(path.read_text(encoding="utf-8"))
    return result


def _measure(study: LoadedStudy, run: PlannedRun, exit_sequences: int) -> Json:
    from loopkit.data import prepare
    from loopkit.evaluation import evaluate, parse_depths
    from loopkit.evaluation.early_exit.benchmark import exit_benchmark
    from loopkit.evaluation.settings import EvaluationSettings, ExitBenchmarkSettings
    from loopkit.evaluation.trained_run import open_run

    opened = open_run(run.folder.path)
    recipe = replace(opened.recipe, evaluate=replace(opened.recipe.evaluate, probes=dict(study.probes)))
    prepared = prepare(recipe.data, splits=(recipe.evaluate.split,), tokenizer=opened.tokenizer)
    settings = EvaluationSettings.from_recipe(recipe, depths=parse_depths(study.depths))
    source: Json = {"trained": opened.trained, "origin": opened.origin}
    result: Json = {"evaluation": evaluate(opened.model, prepared, settings, **source).to_json()}
    if study.exits:
        exits = {name: spec.build() for name, spec in study.exits.items()}
        benchmark_settings = ExitBenchmarkSettings.from_recipe(recipe, sequences=exit_sequences)
        result["early_exit"] = exit_benchmark(opened.model, prepared, exits, benchmark_settings, **source)
    return result
