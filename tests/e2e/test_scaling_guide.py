"""The figures of the guide on scaling are those that ``loopkit plan`` prints for the recipe in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.e2e import documented

pytestmark = pytest.mark.e2e


def test_plan_of_seven_billion_parameters_is_as_printed(root: Path, tmp_path: Path) -> None:
    guide = (root / "docs" / "guides" / "scaling.md").read_text()
    (recipe,) = re.findall(r"```yaml\n(loopkit: 2\n.*?)```", guide, re.DOTALL)
    (command,) = re.findall(r"`loopkit (plan looped_7b.*?)`", guide)
    (table,) = re.findall(r"```text\n(.*?)```", guide, re.DOTALL)
    (tmp_path / "looped_7b.yaml").write_text(recipe)
    shown = documented.run_here(f"loopkit {command}", tmp_path)
    printed = {" ".join(line.split()) for line in shown.splitlines()}
    quoted = [" ".join(line.split()) for line in table.splitlines() if line.strip()]
    assert len(quoted) > 15
    assert [line for line in quoted if line not in printed] == []
