"""The progress display: plain lines or a bar."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from loopkit.training.display import progress
from loopkit.training.display.progress import Display, clock, format_log_line, si


def line(step: int, **changed: Any) -> dict[str, Any]:
    base = {"step": step, "loss": 3.25, "loops": 4, "tokens_per_s": 12345.0, "mfu": 0.123, "peak_memory_bytes": 2**31}
    return base | changed


def shown(*, terminal: bool, quiet: bool = False, steps: int = 3) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=120)
    display = Display(console, quiet=quiet)
    with display.running(steps):
        display.say("a [note]")
        for step in range(1, steps + 1):
            display.log(line(step))
    return out.getvalue()


def test_plain_lines_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    lines = shown(terminal=False).splitlines()
    assert lines[0] == "a [note]"
    assert lines[1] == "step 1/3  loss 3.2500  loops 4  12.3k tok/s  mfu 12.3%  mem 2.0 GiB"
    assert lines[2].startswith("step 2/3")
    assert "eta 0:00" in lines[3]
    assert "\x1b" not in "".join(lines)


def test_fast_steps_share_lines_and_last_is_shown() -> None:
    lines = shown(terminal=False, steps=500).splitlines()
    assert len(lines) == 3
    assert lines[-1].startswith("step 500/500")


def test_terminal_shows_a_bar_with_figures() -> None:
    text = shown(terminal=True)
    assert "3/3" in text
    assert "loss 3.2500  loops 4" in text


def test_other_ranks_are_silent() -> None:
    assert shown(terminal=False, quiet=True) == ""


def test_unknown_values_are_omitted() -> None:
    assert format_log_line(line(1, mfu=None), None) == "loss 3.2500  loops 4  12.3k tok/s  mem 2.0 GiB"
    assert "eta 1:01:01" in format_log_line(line(1), 3661)


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (3600, "1:00:00")])
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


@pytest.mark.parametrize(("number", "text"), [(9.5, "9.5"), (950, "950"), (12345, "12.3k"), (4.56e6, "4.56M")])
def test_si(number: float, text: str) -> None:
    assert si(number) == text
