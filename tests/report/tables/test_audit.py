"""The table of an audit, built from its JSON."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest

from loopkit.report.console import console
from loopkit.report.tables.audit import audit_report, scale_reasons, what_to_change


def build_audit(**scale: Any) -> dict[str, Any]:
    """Build the JSON of an audit as read from a file, with text keys."""
    flat = {"1": 1e-7, "10": 1e-9, "100": 1e-11}
    audit = {
        "subject": "a_run, step-00000600",
        "measured_on": "the run's weights",
        "scale": {
            "verdict": "blind spot",
            "visible": False,
            "active": True,
            "held_by": [],
            "readouts": [{"loop": k, "fraction": flat, "slope": flat, "sees": False} for k in (1, 2, 4)],
            "terms": [{"name": "supervision", "weight": 1.0, "slope": flat | {"1000000": 0.0}, "holds": False}],
            "recurrence": {
                "state_rms": 3.0,
                "power": 1.0,
                "power_of_carry": 1.0,
                "kept": 1.0,
                "radial": {"1": 12.0, "10": 12.0, "100": 12.0},
                "angular": {"1": 0.5, "10": 0.5, "100": 0.5},
                "turn": {"1": 0.1, "10": 0.01, "100": 0.001},
                "lemma_2": {"growth": 12.1, "radial_update": 12.2},
            },
        }
        | scale,
        "recurrence": {"verdict": "unstable", "spectral_radius": [{"depth": 4, "mean": 0.99, "max": 1.004}]},
        "remedies": {"model.readout": ["raw", "final_only", "alpha"], "objective.regularizers": ["norm_penalty"]},
        "notes": ["a newer checkpoint is damaged"],
    }
    return json.loads(json.dumps(audit))


def render(audit: dict[str, Any]) -> str:
    file = io.StringIO()
    console(file).print(audit_report(audit))
    return file.getvalue()


def test_table_fits_eighty_columns_in_order() -> None:
    long = {"name": "regularizer " + "x" * 90, "weight": 1.0, "slope": {"1": 1.0, "10": 2.0, "100": 3.0}, "holds": True}
    audit = build_audit(terms=[long])
    text = render(audit)
    assert all(len(line) <= 80 for line in text.splitlines())
    order = [
        "a_run",
        "scale: blind spot",
        "recurrence: unstable",
        "after loop 4",
        "turn of the state",
        "what to change",
    ]
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)
    assert "a newer checkpoint is damaged" in text
    assert "1.004 at most, 0.990 on average over sequences, within the 1 %" in re.sub(r"\s+", " ", text)


def test_reasons_state_the_deciding_values() -> None:
    reasons = scale_reasons(build_audit()["scale"])
    assert reasons["visible"] == "no: the radial fraction of the supervised readouts falls to 1.0e-11"
    assert reasons["active"].startswith("yes: the output norm of a loop grows as (input norm)^1.00")
    assert reasons["controlled"] == "no"


@pytest.mark.parametrize(
    ("scale", "reason"),
    [
        ({"visible": True, "held_by": ["supervision"]}, "yes: by the supervised readouts that depend on it"),
        ({"held_by": ["supervision"]}, "yes: by supervision"),
        ({"held_by": ["regularizer norm_penalty"]}, "yes: by regularizer norm_penalty"),
        ({"active": False, "recurrence": None}, "yes: because it is not passed from loop to loop"),
        (
            {"terms": [{"name": "supervision", "slope": {"1": -0.3, "100": 0.01}}]},
            "no: supervision depends on it, but does not pull a large state back",
        ),
    ],
)
def test_reason_for_controlled_scale(scale: dict[str, Any], reason: str) -> None:
    assert scale_reasons(build_audit(**scale)["scale"])["controlled"] == reason


def test_advice_names_the_keys() -> None:
    audit = build_audit()
    advice = what_to_change(audit)
    assert advice.startswith(
        "set model.readout to raw, final_only or alpha; or add norm_penalty to objective.regularizers (each"
    )
    assert "train.schedule" in advice
    assert what_to_change(build_audit(verdict="controlled") | {"recurrence": {"verdict": "stable"}}) == "nothing"
    assert "No single built-in component removes the blind spot." in what_to_change(audit | {"remedies": {}})


def test_audit_without_readouts_or_loops() -> None:
    text = render(build_audit(readouts=[], terms=[], recurrence=None, active=False))
    assert "no supervised readout passes a gradient to the state" in text
    assert "the model runs only one loop" in text
