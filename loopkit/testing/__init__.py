"""The conformance kit: what every component of a kind must do, whoever wrote it.

From the command line, ``pytest --loopkit-component my_package:MyReadout``. From a test of one's own::

    @pytest.mark.parametrize("case", cases("my_package:MyReadout"), ids=str)
    def test_conformance(case: Case) -> None:
        case()

From Python, ``check(MyReadout)`` raises with everything that is violated.
"""

from loopkit.testing.case import Case, NotChecked, Violation, cases, check
from loopkit.testing.subject import NoSubject

__all__ = ["Case", "NoSubject", "NotChecked", "Violation", "cases", "check"]
