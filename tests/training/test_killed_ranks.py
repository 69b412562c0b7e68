"""Ranks of a run, and their launcher, killed at random moments: nothing is lost, and nothing is left running."""

from __future__ import annotations

from pathlib import Path

import pytest

KILLS, WRITING = 12, 4


@pytest.mark.slow
def test_repeatedly_killed_ranks_are_bitwise_exact(recipe_file: Path, tmp_path: Path) -> None:
    from tests.training.killed_ranks import VICTIMS, study

    seen = study(recipe_file, tmp_path, kills=KILLS, writing=WRITING)
    assert len(seen.victims) >= KILLS
    assert set(seen.victims) == set(VICTIMS)
    assert seen.writing >= WRITING
