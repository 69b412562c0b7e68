"""Lines in, lines out."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopkit.runs.metrics import MetricsLog, cut_metrics, read_metrics


def write(path: Path, steps: range) -> None:
    with MetricsLog(path) as log:
        for step in steps:
            log.write({"step": step, "ce": [None, step / 10]})


def test_lines_are_appended_and_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, range(1, 3))
    write(path, range(3, 4))
    assert [line["step"] for line in read_metrics(path)] == [1, 2, 3]
    assert read_metrics(path)[2]["ce"] == [None, 0.3]


def test_a_line_is_readable_before_the_log_is_closed(tmp_path: Path) -> None:
    with MetricsLog(tmp_path / "m") as log:
        log.write({"step": 1})
        assert read_metrics(tmp_path / "m") == [{"step": 1}]


def test_cutting_drops_later_steps_and_a_line_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, range(1, 6))
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole) + b'{"step": 6, "lo')
    assert len(read_metrics(path)) == 5
    cut_metrics(path, 3)
    assert path.read_bytes() == b"".join(whole[:3])
    cut_metrics(tmp_path / "absent", 3)


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "m").write_text('{"step": 1}\nnonsense\n{"step": 3}\n')
    with pytest.raises(ValueError, match=r"m:2: this line is not JSON"):
        read_metrics(tmp_path / "m")


def test_not_a_number_is_refused(tmp_path: Path) -> None:
    with MetricsLog(tmp_path / "m") as log, pytest.raises(ValueError, match="not JSON compliant"):
        log.write({"loss": float("nan")})
