"""Completion in the shell: the lines that the guides print work, and TAB offers names without importing torch."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from loopkit.recipe.shipped import shipped_recipes


def printed(root: Path) -> dict[str, str]:
    """The line for each shell, wherever a guide has it."""
    found = {}
    for guide in (root / "docs/guides").glob("*.md"):
        for line in re.findall(r"^.*_LOOPKIT_COMPLETE=.*$", guide.read_text(), re.MULTILINE):
            found[re.search(r"=(\w+)_source", line)[1]] = line.partition("  #")[0].strip()  # type: ignore[index]
    return found


@pytest.fixture
def env(tmp_path: Path, root: Path) -> dict[str, str]:
    """An environment in which ``loopkit`` is this checkout's, whether or not it is installed."""
    program = tmp_path / "bin" / "loopkit"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m loopkit "$@"\n')
    program.chmod(0o755)
    path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": path}


def offered(words: str, env: dict[str, str], cwd: Path) -> set[str]:
    """What is offered for the last word of a line, files aside."""
    asked = env | {"_LOOPKIT_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run(["loopkit"], env=asked, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {line.removeprefix("plain,") for line in done.stdout.splitlines() if line.startswith("plain,")}


def test_the_guides_have_a_line_for_each_shell_that_yields_a_script(root: Path, env: dict[str, str]) -> None:
    lines = printed(root)
    assert set(lines) == {"bash", "zsh", "fish"}
    marks = {
        "bash": "complete -o nosort -F",
        "zsh": "compdef _loopkit_completion loopkit",
        "fish": "complete --no-files",
    }
    for shell, line in lines.items():
        asked = re.search(r"_LOOPKIT_COMPLETE=\w+ loopkit", line)
        assert asked
        done = subprocess.run(asked[0], shell=True, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert marks[shell] in done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_bash_completes_after_the_printed_line(root: Path, env: dict[str, str]) -> None:
    code = f"{printed(root)['bash']}\nCOMP_WORDS=(loopkit tr)\nCOMP_CWORD=1\n_loopkit_completion loopkit\n"
    code += 'echo "${COMPREPLY[@]}"\ncomplete -p loopkit'
    done = subprocess.run(["bash", "--norc", "-c", code], env=env, capture_output=True, text=True)
    assert done.stdout.splitlines()[0] == "train", done.stderr
    assert "_loopkit_completion" in done.stdout.splitlines()[1]


def test_names_of_recipes_studies_and_runs_are_offered(env: dict[str, str], tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / "elsewhere" / name).mkdir(parents=True)
        (tmp_path / "elsewhere" / name / "resolved.yaml").touch()
    begun = {name for name in shipped_recipes() if name.startswith("wikitext_44m_n")}
    assert len(begun) > 1
    assert offered("loopkit train wikitext_44m_n", env, tmp_path) == begun
    assert offered("loopkit validate wikitext_44m_raw wikitext_44m_n", env, tmp_path) == begun
    assert offered("loopkit reproduce read", env, tmp_path) == {"readout_blind_spot"}
    assert offered("loopkit eval --runs elsewhere f", env, tmp_path) == {"first"}
    assert offered("loopkit report --root elsewhere first s", env, tmp_path) == {"second"}
    assert offered("loopkit audit --runs elsewhere s", env, tmp_path) == {"second"}
    assert offered("loopkit eval f", env, tmp_path) == set()


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
    asked = {"_LOOPKIT_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | asked, capture_output=True, text=True)
    assert done.stderr == "torch: False"
