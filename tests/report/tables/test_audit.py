"""The table of an audit, from its JSON alone."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest

from loopkit.report.console import console
from loopkit.report.tables.audit import audit_report, scale_reasons, what_to_change


def found(**scale: Any) -> dict[str, Any]:
    """The JSON of an audit as it is read back from a file: its keys are text."""
    flat = {"1": 1e-7, "10": 1e-9, "100": 1e-11}
    whole = {
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
    return json.loads(json.dumps(whole))


def printed(audit: dict[str, Any]) -> str:
    file = io.StringIO()
    console(file).print(audit_report(audit))
    return file.getvalue()


def test_fits_eighty_columns_and_reads_in_order() -> None:
    long = {"name": "regularizer " + "x" * 90, "weight": 1.0, "slope": {"1": 1.0, "10": 2.0, "100": 3.0}, "holds": True}
    audit = found(terms=[long])
    text = printed(audit)
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


def test_the_figures_that_decide() -> None:
    reasons = scale_reasons(found()["scale"])
    assert reasons["visible"] == "no: the radial fraction of the supervised readouts falls to 1.0e-11"
    assert reasons["active"].startswith("yes: what leaves a loop grows as the power 1.00")
    assert reasons["controlled"] == "no"


@pytest.mark.parametrize(
    ("scale", "reason"),
    [
        ({"visible": True, "held_by": ["supervision"]}, "yes: by the supervised readouts that see it"),
        ({"held_by": ["supervision"]}, "yes: by supervision"),
        ({"held_by": ["regularizer norm_penalty"]}, "yes: by regularizer norm_penalty"),
        ({"active": False, "recurrence": None}, "yes: because it does not go from loop to loop"),
        (
            {"terms": [{"name": "supervision", "slope": {"1": -0.3, "100": 0.01}}]},
            "no: supervision answers to it, but does not pull a large state back",
        ),
    ],
)
def test_why_it_is_controlled(scale: dict[str, Any], reason: str) -> None:
    assert scale_reasons(found(**scale)["scale"])["controlled"] == reason


def test_what_to_change_names_the_keys() -> None:
    audit = found()
    said = what_to_change(audit)
    assert said.startswith(
        "set model.readout to raw, final_only or alpha; or add norm_penalty to objective.regularizers (each"
    )
    assert "train.schedule" in said
    assert what_to_change(found(verdict="controlled") | {"recurrence": {"verdict": "stable"}}) == "nothing"
    assert "No single built-in part ends it." in what_to_change(audit | {"remedies": {}})


def test_a_recipe_without_readouts_or_loops() -> None:
    text = printed(found(readouts=[], terms=[], recurrence=None, active=False))
    assert "no supervised readout teaches the state" in text
    assert "there is no second loop" in text
