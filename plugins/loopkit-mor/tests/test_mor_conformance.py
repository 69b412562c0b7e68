"""The rules that every component of its kind follows, by loopkit's own kit."""

from __future__ import annotations

import pytest

from loopkit.testing import Case, cases

COMPONENTS = [
    "loopkit_mor:TokenRouted",
    "loopkit_mor:RouterBalance",
    "loopkit_mor:RouterZ",
]


@pytest.mark.parametrize("case", [case for name in COMPONENTS for case in cases(name)], ids=str)
def test_it_follows_the_rules_of_its_kind(case: Case) -> None:
    case()
