"""A run of a few optimizer steps, for commands that open one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loopkit.recipe import load_recipe
from tests.training.conftest import RECIPE, TEXT
from tests.training.runs import fit

PROBLEMS = [
    {"question": f"What is {n} + 1?", "answer": f"One more than {n}.\n#### {n + 1}"} for n in (1, 22, 333, 4444, 5)
]


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run ``tiny``, whose positions do not end, and five problems in ``problems.jsonl``."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "texts").mkdir()
    for split in ("train", "validation"):
        (folder / "texts" / f"{split}.txt").write_text(TEXT)
    (folder / "tiny.yaml").write_text(RECIPE)
    overrides = ["model.position=rope", "train.steps=1", "evaluate.tasks.perplexity=false"]
    fit(load_recipe(folder / "tiny.yaml", (), overrides), folder / "runs" / "tiny")
    (folder / "problems.jsonl").write_text("\n".join(map(json.dumps, PROBLEMS)))
    for path in (folder / "texts").iterdir():
        path.unlink()  # commands that need no data must work without it
    return folder / "runs"
