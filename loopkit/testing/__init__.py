"""The conformance kit: what every component of a kind must do, whoever wrote it.

From the command line, ``pytest --loopkit-component my_package:MyReadout``. From a test of one's own::

    @pytest.mark.parametrize("case", cases("my_package:MyReadout"), ids=str)
    def test_conformance(case: Case) -> None:
        case()

From Python, ``check(MyReadout)`` raises with everything that is violated.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loopkit.testing.case import Case as Case
    from loopkit.testing.case import NotChecked as NotChecked
    from loopkit.testing.case import Violation as Violation
    from loopkit.testing.case import cases as cases
    from loopkit.testing.case import check as check
    from loopkit.testing.component_under_test import NoSubject as NoSubject

_HOMES = {name: "case" for name in ("Case", "NotChecked", "Violation", "cases", "check")} | {
    "NoSubject": "component_under_test"
}

__all__ = ["Case", "NoSubject", "NotChecked", "Violation", "cases", "check"]


def __getattr__(name: str) -> Any:
    # pytest imports this package at every start, for the plugin in it
    if name in _HOMES:
        return getattr(import_module(f"loopkit.testing.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
