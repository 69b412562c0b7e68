"""The README's commands, as a newcomer runs them: from a folder of their own, with what was installed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

INSTALLING = ("python -m venv", "pip install", "git clone", "cd ")


def blocks(root: Path, language: str) -> list[str]:
    """The fenced blocks of the README in a language."""
    return re.findall(rf"```{language}\n(.*?)```", (root / "README.md").read_text(), flags=re.DOTALL)


def commands(root: Path) -> list[str]:
    """Every ``loopkit`` command of the README, in order."""
    found = []
    for block in blocks(root, "bash"):
        for line in block.splitlines():
            for part in line.split("#")[0].split("&&"):
                if part.strip().startswith("loopkit "):
                    found.append(part.strip())
    return found


@pytest.fixture(scope="module")
def place(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder that sees the recipes where the README's commands expect them."""
    place = tmp_path_factory.mktemp("newcomer")
    (place / "recipes").symlink_to(root / "recipes")
    return place


def test_every_command_of_the_readme_works(root: Path, place: Path) -> None:
    ran = []
    for command in commands(root):
        words = [sys.executable, "-m", "loopkit", *shlex.split(command)[1:]]
        env = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}  # as a user has it
        done = subprocess.run(words, cwd=place, capture_output=True, text=True, timeout=900, env=env)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        ran.append(command)
    assert ran[0].startswith("loopkit train recipes/wikitext_44m_raw.yaml --profile mini")
    assert any(command.startswith("loopkit eval --depths 1-8") for command in ran)


def test_the_python_of_the_readme_works(root: Path, place: Path) -> None:
    code = "\n".join(blocks(root, "python"))
    assert "loopkit.load(" in code
    done = subprocess.run([sys.executable, "-c", code], cwd=place, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
