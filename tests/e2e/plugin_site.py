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
from tests.e2e.commands import no_plots

def run(program, *words):
    if program == "pytest":
        return int(pytest.main(list(words))), ""
    with mock.patch.object(sys, "argv", [program, *words]):
        result = CliRunner().invoke(main, words, prog_name=program)
    error = None if isinstance(result.exception, SystemExit) else result.exception
    return result.exit_code, result.output + ("".join(traceback.format_exception(error)) if error else "")

commands, results = map(Path, sys.argv[1:3])
done = []
with no_plots() if sys.argv[3:] else contextlib.nullcontext():
    for folder, words in json.loads(commands.read_text()):
        with contextlib.chdir(folder):
            done.append(run(*words))
results.write_text(json.dumps(done))
"""
"""Runs ``loopkit`` and ``pytest`` commands one after the other in one process, because starting costs most."""

WHEELS = """
import os, sys
from setuptools import build_meta
_, wheels, *folders = sys.argv  # which the builds change
for folder in folders:
    os.chdir(folder)
    build_meta.build_wheel(wheels)
"""


def python(words: list[str]) -> None:
    """Run a program that must succeed with this interpreter."""
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


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
        """Build wheels from copies, because builds leave files beside their source, and install them; no network.

        pip starts two processes for each package that it builds, so one process builds all wheels.
        """
        wheels, copies = (self.folder.parent / name for name in ("wheels", "sources"))
        wheels.mkdir(parents=True)
        for package in packages:
            shutil.copytree(package, copies / package.name, ignore=IGNORED)
        python(["-c", WHEELS, str(wheels), *(str(copies / package.name) for package in packages)])
        self._pip(*wheels.glob("*.whl"))

    def install_folder(self, package: Path) -> None:
        """Run ``pip install FOLDER``, without network."""
        copy = self.folder.parent / "sources" / package.name
        shutil.copytree(package, copy, ignore=IGNORED)
        self._pip("--no-build-isolation", copy)

    def _pip(self, *words: object) -> None:
        offline = ["-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(self.folder)]
        python([*offline, *map(str, words)])

    def remove(self, package: str) -> None:
        """What uninstalling does: the package's files and its metadata are gone."""
        for folder in self.folder.glob(f"{package.replace('-', '_')}*"):
            shutil.rmtree(folder)

    def run(
        self, commands: Iterable[tuple[Path, list[str]]], *, plots: bool = True
    ) -> tuple[list[tuple[int, str]], str]:
        """Run commands in one process.

        Args:
            commands: For each command, the folder in which it runs and its words, the program first.
            plots: Whether reports render their figures.

        Returns:
            The exit code and the output of each command, and what the process printed: the output of pytest.
        """
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        request, response = (self.folder.parent / name for name in ("commands.json", "results.json"))
        request.write_text(json.dumps([(str(folder), words) for folder, words in commands]))
        done = subprocess.run(
            [sys.executable, "-P", "-c", COMMANDS, str(request), str(response), *([] if plots else ["no plots"])],
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
