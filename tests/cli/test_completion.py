"""Shell completion: the lines of the guides work, and names are completed without importing torch."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from loopkit.recipe.shipped import shipped_recipes


def completion_lines(root: Path) -> dict[str, str]:
    """The line that enables completion, for each shell, as the guides show it."""
    lines = {}
    for guide in (root / "docs/guides").glob("*.md"):
        for line in re.findall(r"^.*_LOOPKIT_COMPLETE=.*$", guide.read_text(), re.MULTILINE):
            lines[re.search(r"=(\w+)_source", line)[1]] = line.partition("  #")[0].strip()  # type: ignore[index]
    return lines


@pytest.fixture
def env(tmp_path: Path, root: Path) -> dict[str, str]:
    """An environment in which ``loopkit`` is this checkout's, whether or not it is installed."""
    program = tmp_path / "bin" / "loopkit"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m loopkit "$@"\n')
    program.chmod(0o755)
    path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": path}


def complete(words: str, env: dict[str, str], cwd: Path) -> set[str]:
    """Complete the last word of a line; files are left out."""
    variables = env | {"_LOOPKIT_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    result = subprocess.run(["loopkit"], env=variables, cwd=cwd, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return {line.removeprefix("plain,") for line in result.stdout.splitlines() if line.startswith("plain,")}


def test_guides_enable_completion_in_each_shell(root: Path, env: dict[str, str]) -> None:
    lines = completion_lines(root)
    assert set(lines) == {"bash", "zsh", "fish"}
    expected = {
        "bash": "complete -o nosort -F",
        "zsh": "compdef _loopkit_completion loopkit",
        "fish": "complete --no-files",
    }
    for shell, line in lines.items():
        command = re.search(r"_LOOPKIT_COMPLETE=\w+ loopkit", line)
        assert command
        result = subprocess.run(command[0], shell=True, env=env, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        assert expected[shell] in result.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_commands(root: Path, env: dict[str, str]) -> None:
    code = f"{completion_lines(root)['bash']}\nCOMP_WORDS=(loopkit tr)\nCOMP_CWORD=1\n_loopkit_completion loopkit\n"
    code += 'echo "${COMPREPLY[@]}"\ncomplete -p loopkit'
    result = subprocess.run(["bash", "--norc", "-c", code], env=env, capture_output=True, text=True)
    assert result.stdout.splitlines()[0] == "train", result.stderr
    assert "_loopkit_completion" in result.stdout.splitlines()[1]


def test_recipes_studies_and_runs_are_completed(env: dict[str, str], tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / "elsewhere" / name).mkdir(parents=True)
        (tmp_path / "elsewhere" / name / "resolved.yaml").touch()
    matching = {name for name in shipped_recipes() if name.startswith("wikitext_44m_n")}
    assert len(matching) > 1
    assert complete("loopkit train wikitext_44m_n", env, tmp_path) == matching
    assert complete("loopkit validate wikitext_44m_raw wikitext_44m_n", env, tmp_path) == matching
    assert complete("loopkit reproduce read", env, tmp_path) == {"readout_blind_spot"}
    assert complete("loopkit eval --runs elsewhere f", env, tmp_path) == {"first"}
    assert complete("loopkit report --runs elsewhere first s", env, tmp_path) == {"second"}
    assert complete("loopkit audit --runs elsewhere s", env, tmp_path) == {"second"}
    assert complete("loopkit eval f", env, tmp_path) == set()


@pytest.mark.parametrize("words", ["loopkit ", "loopkit train wiki", "loopkit eval "])
def test_completion_does_not_import_torch(words: str, tmp_path: Path) -> None:
    code = """
import sys
from loopkit.cli import main
try:
    main(prog_name="loopkit")
finally:
    sys.stderr.write(f"torch: {'torch' in sys.modules}")
"""
    variables = {"_LOOPKIT_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    result = subprocess.run([sys.executable, "-c", code], env=os.environ | variables, capture_output=True, text=True)
    assert result.stderr == "torch: False"
