"""Ranks of a run, and their launcher, killed at random moments: nothing is lost, and nothing is left running."""

from __future__ import annotations

from pathlib import Path

import pytest

KILLS, WRITING = 12, 4


@pytest.mark.slow
def test_two_ranks_that_are_killed_again_and_again_are_the_run_that_is_not(recipe_file: Path, tmp_path: Path) -> None:
    from tests.training.killed_ranks import VICTIMS, study

    seen = study(recipe_file, tmp_path, kills=KILLS, writing=WRITING)
    assert len(seen.victims) >= KILLS
    assert set(seen.victims) == set(VICTIMS)
    assert seen.writing >= WRITING
