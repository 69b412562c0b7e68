"""Lines in, lines out."""

from __future__ import annotations

from pathlib import Path

import pytest

from loopkit.runs.metrics import MetricsLog, cut_metrics, read_events, read_metrics


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


def test_line_is_readable_before_the_log_closes(tmp_path: Path) -> None:
    with MetricsLog(tmp_path / "m") as log:
        log.write({"step": 1})
        assert read_metrics(tmp_path / "m") == [{"step": 1}]


def test_cut_drops_later_steps_and_partial_lines(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, range(1, 6))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines) + b'{"step": 6, "lo')
    assert len(read_metrics(path)) == 5
    cut_metrics(path, 3)
    assert path.read_bytes() == b"".join(lines[:3])
    cut_metrics(tmp_path / "absent", 3)


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "m").write_text('{"step": 1}\nnonsense\n{"step": 3}\n')
    with pytest.raises(ValueError, match=r"m:2: this line is not JSON"):
        read_metrics(tmp_path / "m")


def test_nan_is_rejected(tmp_path: Path) -> None:
    with MetricsLog(tmp_path / "m") as log, pytest.raises(ValueError, match="not JSON compliant"):
        log.write({"loss": float("nan")})


def test_events_are_cut_with_their_steps(tmp_path: Path) -> None:
    path = tmp_path / "m"
    skip, back = {"step": 4, "event": "x"}, {"step": 7, "event": "x", "to_step": 5}
    with MetricsLog(path) as log:
        for record in ({"step": 3}, skip, {"step": 5}, back, {"step": 6}, {"step": 7}):
            log.write(record)
    assert [line["step"] for line in read_metrics(path)] == [3, 5, 6, 7]
    assert read_events(path) == [skip, back]
    cut_metrics(path, 6)  # a checkpoint of step 6 was written after the rewind
    assert read_events(path) == [skip, back]
    cut_metrics(path, 5, rewinding=True)  # a second rewind to step 5 does not undo the first
    assert (read_events(path), [line["step"] for line in read_metrics(path)]) == ([skip, back], [3, 5])
    cut_metrics(path, 5)  # resumed there, the run will rewind again
    assert read_events(path) == [skip]
    cut_metrics(path, 3)
    assert (read_events(path), read_metrics(path)) == ([], [{"step": 3}])
