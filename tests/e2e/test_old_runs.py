"""Runs made by earlier code are resumed and evaluated, to the numbers that the code of their time gave."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from loopkit.runs import RunFolder, read_metrics
from tests.fixtures.runs import record

FOLDER = Path(record.__file__).parent
RUNS = sorted(file.parent.name for file in FOLDER.glob("*/expected.json"))
ELSEWHERE = 1e-4
"""Relative difference allowed where the processor or torch is not the one of the recording."""

RENAMED = {"evaluate.protocol=paper_a": "evaluate.protocol=half_overlap"}
"""Settings of the recorded commands that have another name in format 2 of recipes."""

OTHER_DROPOUT = ("wikitext_44m_raw", "wikitext_44m_norm_penalty", "addition_pre_fixed")
"""Runs with dropout, whose channels a generator had chosen. They resume with other channels, because dropout is now
keyed by seed, step, sample and position; what does not depend on the channels is the same."""


@pytest.mark.parametrize("name", RUNS)
def test_old_run_resumes_and_evaluates(name: str, tmp_path: Path) -> None:
    """A run kept as it was after step 3 gives the steps 4 to 6 and the figures at every depth that it gave then, with
    its corpus in another place: bit for bit with the processor and the torch of the recording."""
    expected = json.loads((FOLDER / name / "expected.json").read_text())
    exact = expected["arithmetic"] == record.arithmetic()
    run = tmp_path / name
    shutil.copytree(FOLDER / name, run, ignore=shutil.ignore_patterns("expected.json"))
    corpus = str(FOLDER / "corpus")
    values = [RENAMED.get(value, value) for value in expected["values"]]
    words = [word for value in values for word in ("--set", value.replace(record.CORPUS, corpus))]
    record.call("train", name, "--profile", "smoke", *words, "--runs", str(tmp_path), "--name", name, "--resume")
    lines = read_metrics(RunFolder(run).metrics)
    assert [line["step"] for line in lines] == list(range(1, record.STEPS + 1))
    compare(steps(expected["metrics"], name), lines[record.STOP :], name, exact=exact)
    moved = ("--set", f"data.source.path={corpus}") if record.TEXT in expected["values"] else ()
    for step, rows in expected["depths"].items():
        if int(step) == record.STOP or name not in OTHER_DROPOUT:
            where = ("--runs", str(tmp_path), "--step", step, "--depths", record.DEPTHS)
            actual = json.loads(record.call("eval", name, *where, *moved, "--json"))["depths"]
            compare(figures(rows, name), actual, f"{name} step {step}", exact=exact)


def figures(recorded: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Return an evaluation without what is defined otherwise since then.

    Sources state what their words are. Readout ``final_only`` states that it reads the last loop differently: training
    supervised loops 1 to 3 before the last one, and the evaluation reads each depth as the last.
    """
    changed = {"word_ppl", "trained"} if name == "wikitext_44m_final_only" else {"word_ppl"}
    return [{key: value for key, value in row.items() if key not in changed} for row in recorded]


def steps(recorded: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """What a resumed run must log: everything that was recorded, or of a run with other dropout what is free of it."""
    free = ("step", "loops", "loops_mean", "backprop_loops", "lr", "tokens", "flops", "batch_sha")
    return [{key: line[key] for key in free} for line in recorded] if name in OTHER_DROPOUT else recorded


def test_recorded_runs_are_those_of_the_recorder() -> None:
    assert sorted(record.RUNS) == RUNS
    assert len(RUNS) == 10


@pytest.mark.parametrize("other", [{"loss": 1.001}, {}, {"loss": None}, {"loss": math.nan}])
def test_comparison_finds_differences(other: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        compare([{"loss": 1.0}], [other], "run", exact=False)


def test_comparison_elsewhere_allows_rounding() -> None:
    compare([{"loss": 1.0, "step": 3}], [{"loss": 1.00001, "step": 3, "new": 1}], "run", exact=False)
    with pytest.raises(AssertionError):
        compare([{"loss": 1.0}], [{"loss": 1.00001}], "run", exact=True)


def compare(expected: Any, actual: Any, where: str, *, exact: bool) -> None:
    """Check that everything that was recorded is there and equal; figures that later code adds are its own affair."""
    if isinstance(expected, dict):
        assert isinstance(actual, dict), where
        for key, value in expected.items():
            assert key in actual, f"{where}.{key} is missing"
            compare(value, actual[key], f"{where}.{key}", exact=exact)
    elif isinstance(expected, list):
        assert isinstance(actual, list), where
        assert len(expected) == len(actual), where
        for number, (a, b) in enumerate(zip(expected, actual, strict=True)):
            compare(a, b, f"{where}[{number}]", exact=exact)
    elif isinstance(expected, float) and not exact:
        assert isinstance(actual, float), f"{where}: {expected!r}, now {actual!r}"
        assert math.isclose(expected, actual, rel_tol=ELSEWHERE, abs_tol=1e-6), f"{where}: {expected!r}, now {actual!r}"
    else:
        assert expected == actual, f"{where}: {expected!r}, now {actual!r}"
