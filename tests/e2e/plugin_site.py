"""An environment into which a test may install packages without touching anyone else's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

IGNORED = shutil.ignore_patterns("build", "*.egg-info", "__pycache__", "runs")


SEVERAL = """
import json, sys, traceback
from click.testing import CliRunner
from loopkit.cli.main import main
results = [CliRunner().invoke(main, words) for words in json.loads(sys.argv[1])]
def output(result):
    unhandled = result.exception is not None and not isinstance(result.exception, SystemExit)
    return result.output + ("".join(traceback.format_exception(result.exception)) if unhandled else "")
print(json.dumps([(result.exit_code, output(result)) for result in results]))
"""


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

    def loopkit(self, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a command."""
        command = [sys.executable, "-m", "loopkit", *words]
        return subprocess.run(command, cwd=cwd, env=self.env, capture_output=True, text=True, timeout=600)

    def several(self, commands: list[list[str]], cwd: Path) -> list[tuple[int, str]]:
        """Exit code and output of several commands, one after the other in one process, because starting costs most."""
        words = [sys.executable, "-c", SEVERAL, json.dumps(commands)]
        done = subprocess.run(words, cwd=cwd, env=self.env, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        return [(code, output) for code, output in json.loads(done.stdout)]
