"""The commands of the guide on published models, run on tiny folders of the same forms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.e2e import documented
from tests.interop import folders, test_llama

pytestmark = pytest.mark.e2e


def test_every_command_of_exporting_md(root: Path, tmp_path: Path) -> None:
    folders.with_tokenizer(folders.write(tmp_path / "Ouro-1.4B"))
    folders.with_tokenizer(test_llama.write(tmp_path / "TinyLlama_v1.1", layers=22, vocabulary=100))
    for block in documented.blocks(root / "docs/guides/exporting.md"):
        for command in documented.commands(block) if block.language == "bash" else ():
            documented.run_here(command, tmp_path)
    folders.assert_same_model(tmp_path / "Ouro-again", tmp_path / "Ouro-1.4B")
    model = yaml.safe_load((tmp_path / "runs/tinyllama_retrofitted/recipe.yaml").read_text())["model"]
    assert [model["prelude"], model["core"], model["coda"]] == [{"layers": 4}, 8, {"layers": 4}]
    (evaluated,) = (tmp_path / "runs/tinyllama_retrofitted/eval").glob("*.json")
    losses = [row["loss"] for row in json.loads(evaluated.read_text())["depths"]]
    assert losses == pytest.approx([losses[0]] * 4), "more loops do nothing before training"
