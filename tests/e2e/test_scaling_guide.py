"""The figures of the guide on scaling are those that ``loopkit plan`` prints for the recipe in it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e


def test_the_plan_of_seven_billion_parameters_is_the_printed_one(root: Path, tmp_path: Path) -> None:
    guide = (root / "docs" / "guides" / "scaling.md").read_text()
    (recipe,) = re.findall(r"```yaml\n(loopkit: 2\n.*?)```", guide, re.DOTALL)
    (command,) = re.findall(r"`loopkit (plan looped_7b.*?)`", guide)
    (table,) = re.findall(r"```text\n(.*?)```", guide, re.DOTALL)
    (tmp_path / "looped_7b.yaml").write_text(recipe)
    words = [sys.executable, "-m", "loopkit", *command.split()]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, env=_environment(root))
    assert done.returncode == 0, done.stderr
    printed = {" ".join(line.split()) for line in done.stdout.splitlines()}
    quoted = [" ".join(line.split()) for line in table.splitlines() if line.strip()]
    assert len(quoted) > 15
    assert [line for line in quoted if line not in printed] == []


def _environment(root: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
