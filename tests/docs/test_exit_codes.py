"""The page of exit codes lists the table of the code."""

from __future__ import annotations

from pathlib import Path

from loopkit.exit_codes import ExitCode
from loopkit.report.pages.markdown import prose, table


def test_page_lists_every_exit_code(root: Path) -> None:
    rows = [(str(code.value), prose(code.meaning)) for code in ExitCode]
    assert table(("code", "meaning"), rows) in (root / "docs/guides/exit_codes.md").read_text()
