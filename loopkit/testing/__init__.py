"""The conformance kit: the rules that every component of a kind follows.

On the command line: ``pytest --loopkit-component my_package:MyReadout``. In a test::

    @pytest.mark.parametrize("case", cases("my_package:MyReadout"), ids=str)
    def test_conformance(case: Case) -> None:
        case()

In Python, ``check(MyReadout)`` raises one exception with all violations.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loopkit.testing.case import Case as Case
    from loopkit.testing.case import cases as cases
    from loopkit.testing.case import check as check
    from loopkit.testing.component_under_test import ComponentNotFound as ComponentNotFound
    from loopkit.testing.rules import NotChecked as NotChecked
    from loopkit.testing.rules import Violation as Violation

_MODULES = {name: "case" for name in ("Case", "cases", "check")} | {
    "NotChecked": "rules",
    "Violation": "rules",
    "ComponentNotFound": "component_under_test",
}

__all__ = ["Case", "ComponentNotFound", "NotChecked", "Violation", "cases", "check"]


def __getattr__(name: str) -> Any:
    # pytest imports this package at every start because of its plugin, so torch is not imported here
    if name in _MODULES:
        return getattr(import_module(f"loopkit.testing.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
