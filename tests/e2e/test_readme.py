"""The README's commands, as a newcomer runs them: from a folder of their own, with what was installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from loopkit.data import prepare
from loopkit.recipe import load_recipe
from tests.data.bigram import bigram_perplexity
from tests.e2e import documented

pytestmark = pytest.mark.e2e
STEPS = 4


def commands(root: Path) -> list[str]:
    """Every ``loopkit`` command of the README, in order; installing is for the reader."""
    shown = [block for block in documented.blocks(root / "README.md") if block.language == "bash"]
    return [command for block in shown for command in documented.commands(block) if command.startswith("loopkit ")]


def newcomer(root: Path, place: Path, commands: list[str]) -> None:
    """Run commands in a working folder that sees the recipes where the README expects them."""
    (place / "recipes").symlink_to(root / "recipes")
    for command in commands:
        documented.run_here(command, place)


def shortened(command: str) -> str:
    """The command with a few steps and a little text; the whole takes minutes, and how many is up to the machine."""
    less = f"--set train.steps={STEPS} --set evaluate.max_tokens=4000"
    return f"{command} {less}" if command.startswith("loopkit train ") else command


@pytest.fixture(scope="module")
def place(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a newcomer who ran every command of the README in order."""
    place = tmp_path_factory.mktemp("newcomer")
    newcomer(root, place, [shortened(command) for command in commands(root)])
    return place


def test_every_command_of_the_readme_works(root: Path, place: Path) -> None:
    ran = commands(root)
    assert ran[0].startswith("loopkit train recipes/wikitext_44m_raw.yaml --profile mini")
    assert any(command.startswith("loopkit eval --depths 1-8") for command in ran)
    (run,) = (place / "runs").glob("wikitext_44m_raw-mini-*")
    steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert steps[-1] == STEPS
    results = [json.loads(path.read_text()) for path in (run / "eval").glob("*.json")]
    assert any([row["depth"] for row in result["depths"]] == list(range(1, 9)) for result in results)


def test_the_python_of_the_readme_works(root: Path, place: Path) -> None:
    code = "\n".join(block.text for block in documented.blocks(root / "README.md") if block.language == "python")
    assert "loopkit.load(" in code
    done = subprocess.run([sys.executable, "-c", code], cwd=place, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_mini_model_is_a_language_model(root: Path, tmp_path: Path) -> None:
    """At its trained depth it beats a smoothed bigram model fitted on the same tokens and scored on the same ones."""
    newcomer(root, tmp_path, commands(root)[:2])
    recipe = load_recipe("wikitext_44m_raw", ["mini"])
    prepared = prepare(recipe.data)
    train, scored = (split.store.read(0, len(split.store)) for split in prepared.splits.values())
    bigram = bigram_perplexity(train, scored, prepared.tokenizer.size)
    results = [json.loads(path.read_text()) for path in (tmp_path / "runs/wikitext_44m_raw-mini/eval").glob("*.json")]
    rows = [row for result in results for row in result["depths"]]
    perplexities = {row["token_ppl"] for row in rows if row["depth"] == 4}
    print(f"perplexity per byte at four loops: {perplexities}, bigram {bigram:.2f}")
    assert perplexities
    assert max(perplexities) < bigram
