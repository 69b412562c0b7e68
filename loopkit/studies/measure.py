"""The measurements of a study's runs: made once, kept in each run's folder, and read back."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

from loopkit.runs import write_json
from loopkit.studies.runs import Planned, Say
from loopkit.studies.study import LoadedStudy

Json = dict[str, Any]


def measured(study: LoadedStudy, run: Planned, exit_sequences: int, say: Say) -> Json:
    """The evaluation of a run, and its early-exit benchmark where the study asks for one.

    Args:
        study: Says which depths, probes and exits.
        run: Trained to its end.
        exit_sequences: Sequences for each half of the benchmark.
        say: Told what is being done.
    """
    asked = {
        "depths": study.depths,
        "probes": {name: spec.plain() for name, spec in study.probes.items()},
        "exits": {name: spec.plain() for name, spec in study.exits.items()},
        "exit_sequences": exit_sequences,
    }
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:6]
    path = run.folder.path / "study" / f"{study.name}-{digest}.json"
    if not path.is_file():
        say(f"measuring {run.folder.name}")
        path.parent.mkdir(exist_ok=True)
        write_json(path, {"asked": asked, **_measure(study, run, exit_sequences)})
    found: Json = json.loads(path.read_text(encoding="utf-8"))
    return found


def _measure(study: LoadedStudy, run: Planned, exit_sequences: int) -> Json:
    from loopkit.data import prepare
    from loopkit.evaluation import evaluate, parse_depths
    from loopkit.evaluation.early_exit.benchmark import exit_benchmark
    from loopkit.evaluation.trained_run import open_run

    opened = open_run(run.folder.path)
    settings = replace(opened.recipe.evaluate, probes=dict(study.probes))
    prepared = prepare(opened.recipe.data, splits=(settings.split,), tokenizer=opened.tokenizer)
    shared: Json = {
        "length": opened.recipe.data.length,
        "dtype": opened.recipe.train.precision,
        "trained": opened.trained,
        "origin": opened.origin,
    }
    result = evaluate(opened.model, prepared, settings, parse_depths(study.depths), **shared)
    found: Json = {"evaluation": result.to_json()}
    if study.exits:
        exits = {name: spec.build() for name, spec in study.exits.items()}
        found["early_exit"] = exit_benchmark(
            opened.model, prepared, settings, exits, sequences=exit_sequences, **shared
        )
    return found
