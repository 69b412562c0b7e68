"""A study at smoke scale: run, measured, judged, and not run twice."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from loopkit.cli import main

pytestmark = pytest.mark.e2e


def reproduce(place: Path, *words: str) -> Result:
    """The study in this process, which trains every arm in a process of its own."""
    arms = ["--arm", "raw", "--arm", "norm", "--results", str(place / "found.results.json")]
    with contextlib.chdir(place):
        result = CliRunner().invoke(main, ["reproduce", "readout_blind_spot", "--profile", "smoke", *arms, *words])
    assert result.exit_code == 0, result.output
    return result


@pytest.mark.slow  # with arms in this process: the guides on studies
def test_two_arms_run_once_and_are_judged(tmp_path: Path) -> None:
    first = reproduce(tmp_path)
    assert "training readout_blind_spot-smoke-raw-seed42" in first.stderr
    assert "claims hold" in first.stdout
    results = json.loads((tmp_path / "found.results.json").read_text())["profiles"]["smoke"]
    assert set(results["arms"]) == {"raw", "norm"}
    entry = results["arms"]["norm"]["seeds"]["42"]
    assert [row["depth"] for row in entry["evaluation"]["depths"]] == [1, 2, 3, 4]
    assert {"machine", "packages", "tokens", "early_exit"} <= set(entry)
    claims = results["claims"]
    # the readout's blindness to scale is there before anything is trained; what rests on arms not run is not judged
    assert claims["norm_readout_cannot_see_scale"]["holds"] is True
    assert claims["scale_sweep_flat_for_norm"]["holds"] is True
    assert claims["scale_sweep_not_flat_for_raw"]["holds"] is True
    assert "holds" not in claims["penalty_improves_with_depth"]
    assert claims["penalty_improves_with_depth"]["why"] == "not run"
    assert [path.name for path in sorted(tmp_path.glob("*.plots/smoke/*.svg"))] == ["depths.svg", "token_norms.svg"]

    again = reproduce(tmp_path, "--json")
    assert "training" not in again.stderr
    assert "measuring" not in again.stderr
    assert json.loads(again.stdout)["claims"] == claims
