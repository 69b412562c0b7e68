"""The page on Python: its names exist, its code runs, and it lists every command."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import loopkit
from docs.site.reference import introductions
from loopkit.cli.main import COMMANDS, main
from loopkit.errors import UserError
from tests.e2e import documented


@pytest.fixture(scope="module")
def page(root: Path) -> str:
    return (root / "docs/python.md").read_text()


def resolve(name: str) -> object:
    """Import the object with a dotted name."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            value = getattr(value, part)
        return value
    raise ModuleNotFoundError(name)


def test_names_of_the_page_exist(page: str) -> None:
    names = set(re.findall(r"`(loopkit(?:\.\w+)+)`", page))
    assert len(names) > 25
    assert all(resolve(name) is not None for name in names)


def test_names_of_the_reference_page_exist() -> None:
    """A missing name stops the build of the site."""
    names = re.findall(r"^::: (\S+)$", introductions.PYTHON, re.MULTILINE)
    assert len(names) > 5
    assert all(resolve(name) is not None for name in names)


def test_every_command_is_on_the_page(page: str) -> None:
    named = set(re.findall(r"`loopkit ([\w-]+)(?: --\w+)?`", page))
    assert named == set(COMMANDS)


def test_page_lists_the_functions_of_the_package(page: str) -> None:
    first = page.partition("\n## ")[0]
    assert set(re.findall(r"^\| `loopkit\.(\w+)`", first, re.MULTILINE)) == set(loopkit.__all__) - {"__version__"}


def test_importing_loopkit_imports_no_torch() -> None:
    code = "import sys, loopkit; assert 'train' in loopkit.__all__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        loopkit.trian  # noqa: B018


@pytest.fixture(scope="module")
def followed(root: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder in which the code of the page ran, and its output."""
    folder = tmp_path_factory.mktemp("python")
    blocks = documented.blocks(root / "docs/python.md")
    code = "\n".join(block.text for block in blocks if block.language == "python")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


@pytest.mark.e2e
def test_functions_and_commands_give_equal_results(followed: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, printed = followed
    monkeypatch.chdir(folder)
    assert Path("runs/from_python/report.md").is_file()
    words = ["eval", "from_python", "--depths", "1-4", "--set", "evaluate.max_tokens=2000", "--json"]
    rows = json.loads(output_of(words))["depths"]
    assert printed.startswith("".join(f"{row['depth']} {row['loss']}\n" for row in rows))
    text = output_of(["generate", "from_python", "--prompt", "Loops", "--max-tokens", "8"])
    assert f"\n{text}" in printed


def output_of(words: list[str]) -> str:
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.e2e
def test_functions_and_commands_reject_equal_input(followed: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(followed[0])
    with pytest.raises(UserError, match="already exists"):
        loopkit.train("wikitext_44m_raw", profiles=["smoke"], name="from_python")
    with pytest.raises(UserError, match="of a trained run can be set"):
        loopkit.evaluate("from_python", overrides=["model.width=8"])
    with pytest.raises(UserError, match="prompt is empty"):
        loopkit.generate("", "from_python")
