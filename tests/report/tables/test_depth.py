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


def render(result: dict[str, Any]) -> str:
    file = io.StringIO()
    console(file).print(depth_report(result))
    return file.getvalue()


def test_every_depth_has_a_row_trained_marked(sample: Sample) -> None:
    text = render(sample(8, (2, 4)))
    rows = re.findall(r"^ *(\d+)([* ]) +\d+\.\d{4} ", text, re.MULTILINE)
    assert rows == [(str(k), "*" if 2 <= k <= 4 else " ") for k in range(1, 9)]
    assert "trained depths 2-4, mean 3" in text


def test_denominators_and_slice_are_printed(sample: Sample) -> None:
    text = render(sample())
    assert "16,384 tokens = 7,931 words = 43,210 bytes" in text
    assert "first 16,384 of 25,012 tokens of validation" in text
    assert "256 tokens, stride 256, every token once" in text
    assert "64 core calls in 8 batches of 8" in re.sub(r"\s+", " ", text)
    assert "exp(nll / words)" in text


@pytest.mark.parametrize("depths", [1, 8, 40])
def test_table_fits_eighty_columns(sample: Sample, depths: int) -> None:
    result = sample(depths, notes=["a note " * 30])
    for row in result["depths"]:
        row["a_probe_with_a_long_name"] = {"first": 1.5, "second": 2.5e-12}
    text = render(result)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text


def test_colour_only_on_a_terminal(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in render(sample())
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Console(file=io.StringIO(), force_terminal=True, width=80)
    terminal.print(depth_report(sample()))
    assert "\x1b[1m" in terminal.file.getvalue()  # type: ignore[attr-defined]


def test_unmeasured_metrics_have_no_column(sample: Sample) -> None:
    result = sample(2)
    for row in result["depths"]:
        del row["word_ppl"], row["state_norm"], row["radial_fraction"]
    del result["words"], result["trained_depths"], result["units"]
    text = render(result)
    assert "words" not in text
    assert "norm" not in text
    assert "tokens/s" not in text


def test_missing_value_is_a_dash(sample: Sample) -> None:
    result = sample(3)
    del result["depths"][1]["word_ppl"]
    row = next(line for line in render(result).splitlines() if line.strip().startswith("2 "))
    assert row.split()[3] == "-"


def test_non_finite_value_is_named(sample: Sample) -> None:
    result = sample(3)
    del result["depths"][2]["token_ppl"]
    result["depths"][2]["not_finite"] = ["token_ppl"]
    row = next(line for line in render(result).splitlines() if line.strip().startswith("3 "))
    assert "not finite" in row


def test_passes_are_described(sample: Sample) -> None:
    assert "one pass per depth" in render(sample(passes="one per depth"))
    assert "read as in training" in re.sub(r"\s+", " ", render(sample(read_as="trained")))


def test_ascii_terminal_is_supported(sample: Sample) -> None:
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
