from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from loopkit.report import console, depth_report

Sample = Callable[..., dict[str, Any]]


def printed(result: dict[str, Any]) -> str:
    file = io.StringIO()
    console(file).print(depth_report(result))
    return file.getvalue()


def test_shows_every_depth_and_marks_the_trained_ones(sample: Sample) -> None:
    text = printed(sample(8, (2, 4)))
    rows = re.findall(r"^ *(\d+)([* ]) +\d+\.\d{4} ", text, re.MULTILINE)
    assert rows == [(str(k), "*" if 2 <= k <= 4 else " ") for k in range(1, 9)]
    assert "trained depths 2-4, mean 3" in text


def test_prints_the_denominators_and_the_slice(sample: Sample) -> None:
    text = printed(sample())
    assert "16,384 tokens = 7,931 words = 43,210 bytes" in text
    assert "first 16,384 of 25,012 tokens of validation" in text
    assert "256 tokens, stride 256, every token once" in text
    assert "64 core calls in 8 batches of 8" in re.sub(r"\s+", " ", text)
    assert "exp(nll / words)" in text


@pytest.mark.parametrize("depths", [1, 8, 40])
def test_fits_eighty_columns(sample: Sample, depths: int) -> None:
    result = sample(depths, notes=["a note " * 30])
    for row in result["depths"]:
        row["a_probe_with_a_long_name"] = {"first": 1.5, "second": 2.5e-12}
    text = printed(result)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text


def test_no_colour_but_on_a_terminal(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in printed(sample())
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Console(file=io.StringIO(), force_terminal=True, width=80)
    terminal.print(depth_report(sample()))
    assert "\x1b[1m" in terminal.file.getvalue()  # type: ignore[attr-defined]


def test_what_was_not_measured_has_no_column(sample: Sample) -> None:
    result = sample(2)
    for row in result["depths"]:
        del row["word_ppl"], row["state_norm"], row["radial_fraction"]
    del result["words"], result["trained_depths"], result["units"]
    text = printed(result)
    assert "words" not in text
    assert "norm" not in text
    assert "tokens/s" not in text


def test_a_value_missing_at_one_depth_is_a_dash(sample: Sample) -> None:
    result = sample(3)
    del result["depths"][1]["word_ppl"]
    row = next(line for line in printed(result).splitlines() if line.strip().startswith("2 "))
    assert row.split()[3] == "-"


def test_a_value_that_is_not_finite_says_so(sample: Sample) -> None:
    result = sample(3)
    del result["depths"][2]["token_ppl"]
    result["depths"][2]["not_finite"] = ["token_ppl"]
    row = next(line for line in printed(result).splitlines() if line.strip().startswith("3 "))
    assert "not finite" in row


def test_one_pass_per_depth_is_said(sample: Sample) -> None:
    assert "one pass per depth" in printed(sample(passes="one per depth"))
    assert "read as in training" in re.sub(r"\s+", " ", printed(sample(read_as="trained")))


def test_prints_where_the_terminal_knows_no_unicode(sample: Sample) -> None:
    code = (
        "import json, sys; from loopkit.report import console, depth_report; "
        "console().print(depth_report(json.loads(sys.stdin.read())))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(sample(2)).encode(),
        env={"PYTHONIOENCODING": "ascii", "PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"depth" in done.stdout


def test_needs_no_torch() -> None:
    code = "import sys, loopkit.report; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
