"""Commands and code that a document shows, so that a test can run them as a reader would."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from unittest import mock

from click.testing import CliRunner

from loopkit.cli import main

KIT_IS_KNOWN = any(point.value == "loopkit.testing.plugin" for point in entry_points(group="pytest11"))
KIT = [] if KIT_IS_KNOWN else ["-p", "loopkit.testing.plugin"]
"""A checkout that is on the path without being installed has no entry points, by which pytest finds the kit."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a document.

    Args:
        language: The word behind the fence.
        text: What is inside.
        file: Name of the file that the line above the block says it is, as in "`my_readout.py`:"; empty for none.
    """

    language: str
    text: str
    file: str = ""


def blocks(document: Path) -> list[Block]:
    """Every fenced block of a document, in order."""
    pattern = re.compile(r"(?:^[^\n]*`([\w./-]+\.\w+)`:\n\n?)?^```(\w+)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
    return [Block(language, text, file or "") for file, language, text in pattern.findall(document.read_text())]


def commands(block: Block) -> list[str]:
    """The commands of a shell block, without comments; a line may chain several with ``&&``."""
    parts = [part.strip() for line in block.text.splitlines() for part in line.split("#")[0].split("&&")]
    return [part for part in parts if part]


def run(command: str, folder: Path, env: dict[str, str] | None = None, timeout: float = 900) -> str:
    """Run a documented command with this interpreter, and return what it printed.

    ``loopkit``, ``pytest`` and ``python`` are this environment's own, ``cp`` copies one file; what else it may be is
    refused.
    """
    words = shlex.split(command)
    if words[0] == "cp":
        shutil.copy(folder / words[1], folder / words[2])
        return ""
    programs = {"loopkit": ["-m", "loopkit"], "pytest": ["-m", "pytest", *KIT], "pip": ["-m", "pip"], "python": []}
    assert words[0] in programs, f"no test knows how to run {words[0]!r}"
    done = subprocess.run(
        [sys.executable, *programs[words[0]], *words[1:]],
        cwd=folder,
        env=dict(os.environ) if env is None else env,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr, f"{command}\n{done.stderr}"
    return done.stdout


def run_here(command: str, folder: Path) -> str:
    """Run a documented ``loopkit`` command in this process, which saves its start; return what it printed."""
    words = shlex.split(command)
    if words[0] != "loopkit":
        return run(command, folder)
    with contextlib.chdir(folder), mock.patch.object(sys, "argv", words):
        result = CliRunner().invoke(main, words[1:])
    assert result.exit_code == 0, f"{command}\n{result.output}"
    assert "Traceback" not in result.output, f"{command}\n{result.output}"
    return result.stdout
