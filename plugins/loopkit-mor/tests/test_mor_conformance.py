"""The conformance kit on every component of this package."""

from __future__ import annotations

import pytest

from loopkit.testing import Case, cases

COMPONENTS = [
    "loopkit_mor:TokenRouted",
    "loopkit_mor:RouterBalance",
    "loopkit_mor:RouterZ",
]


@pytest.mark.parametrize("case", [case for name in COMPONENTS for case in cases(name)], ids=str)
def test_conformance(case: Case) -> None:
    case()
