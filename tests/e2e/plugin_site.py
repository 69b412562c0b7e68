"""An environment into which a test may install packages without touching anyone else's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

IGNORED = shutil.ignore_patterns("build", "*.egg-info", "__pycache__", "runs")


COMMANDS = """
import contextlib, json, sys, traceback
from pathlib import Path
from unittest import mock

import pytest
from click.testing import CliRunner
from loopkit.cli.main import main

def run(program, *words):
    if program == "pytest":
        return int(pytest.main(list(words))), ""
    with mock.patch.object(sys, "argv", [program, *words]):
        result = CliRunner().invoke(main, words, prog_name=program)
    error = None if isinstance(result.exception, SystemExit) else result.exception
    return result.exit_code, result.output + ("".join(traceback.format_exception(error)) if error else "")

commands, results = map(Path, sys.argv[1:])
done = []
for folder, words in json.loads(commands.read_text()):
    with contextlib.chdir(folder):
        done.append(run(*words))
results.write_text(json.dumps(done))
"""
"""Runs ``loopkit`` and ``pytest`` commands one after the other in one process, because starting costs most."""


@dataclass(frozen=True)
class Site:
    """A folder of installed packages, in front of those of this environment.

    Args:
        folder: Where packages go.
        root: The project, so that its own loopkit runs.
    """

    folder: Path
    root: Path

    @property
    def env(self) -> dict[str, str]:
        """Environment variables of a process that sees the packages."""
        paths = [str(self.folder), str(self.root), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}

    def install(self, *packages: Path) -> None:
        """Build packages, from copies because builds leave files beside their source, and install them; no network."""
        copies = [self.folder.parent / "sources" / package.name for package in packages]
        for package, copy in zip(packages, copies, strict=True):
            shutil.copytree(package, copy, ignore=IGNORED)
        words = ["-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
        done = subprocess.run(
            [sys.executable, *words, "--target", str(self.folder), *map(str, copies)],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr

    def remove(self, package: str) -> None:
        """What uninstalling does: the package's files and its metadata are gone."""
        for folder in self.folder.glob(f"{package.replace('-', '_')}*"):
            shutil.rmtree(folder)

    def run(self, commands: Iterable[tuple[Path, list[str]]]) -> tuple[list[tuple[int, str]], str]:
        """Run commands in one process.

        Args:
            commands: For each command, the folder in which it runs and its words, the program first.

        Returns:
            The exit code and the output of each command, and what the process printed: the output of pytest.
        """
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        request, response = (self.folder.parent / name for name in ("commands.json", "results.json"))
        request.write_text(json.dumps([(str(folder), words) for folder, words in commands]))
        done = subprocess.run(
            [sys.executable, "-P", "-c", COMMANDS, str(request), str(response)],
            cwd=self.folder.parent,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return [(code, output) for code, output in json.loads(response.read_text())], done.stdout + done.stderr

    def several(self, commands: list[list[str]], cwd: Path) -> list[tuple[int, str]]:
        """Exit code and output of several ``loopkit`` commands in one folder."""
        return self.run([(cwd, ["loopkit", *words]) for words in commands])[0]
