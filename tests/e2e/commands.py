"""Commands of loopkit, run in this process: starting Python and importing torch costs more than a tiny run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from click.testing import CliRunner

from loopkit.cli.main import main

TINY = ("train.steps=2", "train.device=cpu")
"""What makes the smoke profile of a recipe as short as it can be."""


def run(*words: object) -> str:
    """Run a command that must succeed, and return what it printed."""
    result = CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, f"loopkit {' '.join(map(str, words))}: exit code {result.exit_code}\n{result.output}"
    return result.stdout


def read(*words: object) -> Any:
    """Run a command with ``--json``, and return what it printed."""
    return json.loads(run(*words, "--json"))


def settings(*values: str) -> list[str]:
    """Values as words of a command line."""
    return [word for value in values for word in ("--set", value)]


def metrics(run: Path) -> list[dict[str, Any]]:
    """The lines of metrics of a run."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@contextmanager
def studies_here() -> Iterator[None]:
    """Train the runs of studies in this process, where a study starts one for each of them."""

    def train(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        words = command[command.index("loopkit") :]
        with mock.patch.object(sys, "argv", words):
            result = CliRunner().invoke(main, words[1:], catch_exceptions=False)
        return subprocess.CompletedProcess(command, result.exit_code)

    with mock.patch("loopkit.studies.runs.subprocess", SimpleNamespace(run=train, DEVNULL=subprocess.DEVNULL)):
        yield


@contextmanager
def no_plots() -> Iterator[None]:
    """Draw figures but do not render them, where a later report renders the same figures."""
    with mock.patch("loopkit.report.plots.style.to_svg", return_value="<svg/>"):
        yield
