"""The rules without a model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loopkit.evaluation.audit import Motion, Pull, Recurrence, ScaleFinding, SpectralRadiusFinding, View

BLIND = View(1, {1: 0.3, 10: 1e-2, 100: 1e-4}, {1: 0.0, 10: 0.0, 100: 0.0})
SEEING = View(2, {1: 0.3, 10: 0.3, 100: 0.3}, {1: 1.0, 10: 10.0, 100: 100.0})
NOTHING = Pull("supervision", 1.0, {1: 0.0, 10: 0.0, 100: 0.0, 10**6: 0.0})
PENALTY = Pull("regularizer penalty", 0.01, {1: 0.02, 10: 2.0, 100: 200.0, 10**6: 2e10})
KEEPING = Motion(1.0, 1.0, 1.0, 1.0, {}, {}, {})
NORMED = replace(KEEPING, power=0.0, power_of_carry=0.0, kept=0.0)


@pytest.mark.parametrize(
    ("views", "pulls", "motion", "verdict"),
    [
        ([BLIND], [NOTHING], KEEPING, "blind spot"),
        ([], [NOTHING], KEEPING, "blind spot"),
        ([BLIND, SEEING], [NOTHING], KEEPING, "controlled"),
        ([BLIND], [NOTHING, PENALTY], KEEPING, "controlled"),
        ([BLIND], [NOTHING], NORMED, "controlled"),
        ([BLIND], [NOTHING], None, "controlled"),
    ],
)
def test_blind_spot_is_invisible_persistent_and_uncontrolled(
    views: list[View], pulls: list[Pull], motion: Motion | None, verdict: str
) -> None:
    scale = ScaleFinding(views, pulls, motion)
    assert scale.verdict == verdict
    assert scale.to_json()["verdict"] == verdict


def test_visibility_by_eps_does_not_count() -> None:
    assert not BLIND.sees
    assert SEEING.sees


@pytest.mark.parametrize(
    ("slope", "holds"),
    [
        ({1: 0.02, 10: 2.0, 100: 200.0, 10**6: 2e10}, True),  # a square
        ({1: 1.0, 10: 1.0, 100: 1.0, 10**6: 1.0}, True),  # a logarithm
        ({1: 1e-8, 10: 1e-7, 100: 1e-6, 10**6: 1e-2}, False),  # too weak for large states
        ({1: -0.3, 10: -0.16, 100: 0.011, 10**6: 1e-12}, False),  # a gate, which levels off
        ({1: 1e-4, 10: 1e-3, 100: 0.03, 10**6: 1e-9}, False),  # a gate that starts small
        ({1: -1.0, 10: -1.0, 100: -1.0, 10**6: -1.0}, False),  # pushes outwards
    ],
)
def test_controls_of_a_large_state(slope: dict[int, float], holds: bool) -> None:
    assert Pull("term", 1.0, slope).holds is holds


def test_stable_if_no_radius_exceeds_one() -> None:
    assert Recurrence().verdict == "unknown until trained"
    assert Recurrence([SpectralRadiusFinding(1, 0.7, 0.9), SpectralRadiusFinding(4, 0.8, 1.0)]).verdict == "stable"
    assert Recurrence([SpectralRadiusFinding(1, 0.7, 0.9), SpectralRadiusFinding(4, 0.8, 1.02)]).verdict == "unstable"
    assert "spectral_radius" not in Recurrence().to_json()
