"""Some of the recipes drawn at random; ``python -m tests.e2e.generated_runs`` runs hundreds."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopkit.errors import UserError
from tests.e2e.generated_runs import Generator, outcome_of, study

pytestmark = pytest.mark.e2e


def test_valid_recipes_train_and_evaluate(tmp_path: Path) -> None:
    outcomes = study(12, 1, tmp_path)
    assert outcomes["faults"] == []
    assert outcomes["states"]["ran"] >= 6


@pytest.mark.slow
def test_hundreds_of_valid_recipes_train_and_evaluate(tmp_path: Path) -> None:
    assert study(300, 0, tmp_path)["faults"] == []


@pytest.mark.parametrize(("error", "state"), [(UserError, "refused late"), (KeyError, "failed")])
def test_study_finds_faults(error: type[Exception], state: str, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    def fit(_: object, folder: Path) -> None:
        folder.mkdir()
        (folder / "metrics.jsonl").touch()
        raise error("a fault")

    monkeypatch.setattr("tests.training.runs.fit", fit)
    outcomes = [outcome_of(recipe, tmp_path / str(seed)) for seed in range(3) for recipe in [Generator(seed).recipe()]]
    assert {outcome.state for outcome in outcomes if outcome.fault} == {state}


def test_one_seed_draws_the_same_recipes() -> None:
    first, second, other = (Generator(seed).recipe() for seed in (3, 3, 4))
    assert first == second != other
